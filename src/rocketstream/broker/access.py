"""Who may ask: with credentials, requests need the signature of one of them, and everybody else is refused.

As with RocketMQ 5.5's authentication, NO_PERMISSION says no. RocketMQ's name servers ask nobody who they are; here that
holds for what only reads: a stranger must not be able to put brokers, routes or settings there.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from rocketstream.broker.connection import ClientConnection
from rocketstream.remoting.acl import ACCESS_KEY, SIGNATURE, Credentials, sign
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

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
    """Lets those in whose signature is right."""

    def __init__(self, credentials: Iterable[Credentials]) -> None:
        self._secrets = {one.access_key: one.secret_key for one in credentials}

    def __repr__(self) -> str:
        return f"<Access {sorted(self._secrets)}>"

    def broker_gate(self, connection: ClientConnection, command: Command) -> bool:
        """Whether a request to the broker was refused."""
        why = self.objection(command)
        if why is None:
            return False
        if not command.is_one_way:
            connection.send(response(command, ResponseCode.NO_PERMISSION, why))
        return True

    def name_server_gate(self, connection: ClientConnection, command: Command) -> bool:
        """Whether a request to the name server was refused."""
        return command.code not in _OPEN and self.broker_gate(connection, command)

    def objection(self, command: Command) -> str | None:
        """What speaks against a request; None if nothing does."""
        fields = command.fields
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            return "username cannot be null."
        secret = self._secrets.get(access_key)
        if secret is None:
            return f"User:{access_key} is not found."
        if command.version <= _V4_9_3 and _UNSIGNED in fields:
            fields = {name: value for name, value in fields.items() if name != _UNSIGNED}
        expected = sign(secret, fields, command.body)
        if not hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode()):
            return "check signature failed."
        return None
