"""Who may ask: with credentials or users, requests need the signature of one of them, and everybody else is refused.

Whoever has `credentials` may do everything, a user what `users` says. As with RocketMQ 5.5's authentication and
authorization, NO_PERMISSION says no. RocketMQ's name servers ask nobody who they are; here that
holds for what only reads: a stranger must not be able to put brokers, routes or settings there.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.demands import demands_of
from rocketstream.broker.users import User
from rocketstream.errors import ProtocolError
from rocketstream.remoting.acl import ACCESS_KEY, SIGNATURE, Credentials, sign
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.broker")

#: What a name server lets everybody do.
_OPEN = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.QUERY_DATA_VERSION,
    }
)
# Clients up to 4.9.3 do not sign this field.
_UNSIGNED, _V4_9_3 = "_UNIQUE_KEY_QUERY", 399


class Access:
    """Lets those in whose signature is right, to what they may do."""

    def __init__(
        self, credentials: Iterable[Credentials], users: Iterable[User] = (), cluster_name: str = "DefaultCluster"
    ) -> None:
        self._admins = tuple(User(one.access_key, one.secret_key, admin=True) for one in credentials)
        self._cluster_name = cluster_name
        self.set_users(users)

    def __repr__(self) -> str:
        return f"<Access {sorted(self._users)}>"

    def set_users(self, users: Iterable[User]) -> None:
        """Let these in from now on, beside whoever has the credentials."""
        self._users = {one.access_key: one for one in (*self._admins, *users)}

    def broker_gate(self, connection: ClientConnection, command: Command) -> bool:
        """Whether a request to the broker was refused."""
        why = self.objection(command) or self.lack(command, connection.address.rpartition(":")[0])
        return self._refused(connection, command, why)

    def name_server_gate(self, connection: ClientConnection, command: Command) -> bool:
        """Whether a request to the name server was refused."""
        if command.code in _OPEN:
            return False
        why = self.objection(command)
        if why is None and not self._users[command.fields[ACCESS_KEY]].admin:
            why = f"User:{command.fields[ACCESS_KEY]} has no permission to access Cluster:{self._cluster_name}"
        return self._refused(connection, command, why)

    def _refused(self, connection: ClientConnection, command: Command, why: str | None) -> bool:
        if why is None:
            return False
        log.info("%s from %s is refused: %s", command.name, connection.address, why)
        if not command.is_one_way:
            connection.send(response(command, ResponseCode.NO_PERMISSION, why))
        return True

    def lack(self, command: Command, host: str) -> str | None:
        """The permission that is missing for a request whose signature is right; None if it may be."""
        user = self._users[command.fields[ACCESS_KEY]]
        if user.admin:
            return None
        try:
            for demand in demands_of(command, self._cluster_name):
                why = user.objection(demand)
                if why is not None:
                    return f"User:{user.access_key} has no permission to access {demand.resource} from {host}, {why}"
        except ProtocolError:
            return "parse authorization context error."
        return None

    def objection(self, command: Command) -> str | None:
        """What speaks against a request; None if nothing does."""
        fields = command.fields
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            return "username cannot be null."
        user = self._users.get(access_key)
        if user is None:
            return f"User:{access_key} is not found."
        if command.version <= _V4_9_3 and _UNSIGNED in fields:
            fields = {name: value for name, value in fields.items() if name != _UNSIGNED}
        expected = sign(user.secret_key, fields, command.body)
        if not hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode()):
            return "check signature failed."
        return None
