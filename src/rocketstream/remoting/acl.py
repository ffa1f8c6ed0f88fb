"""Access control: who we are, signed into every request.

RocketMQ's plain ACL (4.9) and auth 2.0 (5.x) share one scheme: HMAC-SHA1 over the values of the header fields, sorted
by name, followed by the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TypeAlias

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.hooks import RpcHook
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key with its secret; the secret never shows in a `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigurationError("credentials need both an access key and a secret key")
        for name in ("access_key", "secret_key", "token"):
            value: object = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name == "token"):
                raise ConfigurationError(f"credentials: {name} must be a text, not {_kind(value)}")


class RotatingCredentials:
    """Credentials that may be replaced while clients run: of a key that is rotated, of a token that expires.

    Give it to clients as `credentials=`, and call `replace` from any thread; every request from then on is signed with
    the new ones.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.replace(credentials)

    def __repr__(self) -> str:
        return f"<RotatingCredentials {self._current.access_key}>"

    @property
    def current(self) -> Credentials:
        """What the next request is signed with."""
        return self._current

    def replace(self, credentials: Credentials) -> None:
        """Sign with these from now on."""
        given: object = credentials
        if not isinstance(given, Credentials):
            raise ConfigurationError(f"credentials must be Credentials(access_key, secret_key), not {_kind(given)}")
        self._current = credentials


AnyCredentials: TypeAlias = Credentials | RotatingCredentials


def _kind(value: object) -> str:
    """What something is that is no credentials; without the value, for a secret is likely part of it."""
    return type(value).__name__


def sign(secret_key: str, fields: dict[str, str], body: bytes) -> str:
    """The signature of a request with these header fields (a signature among them does not count) and this body."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    content = values.encode() + body
    return base64.b64encode(hmac.new(secret_key.encode(), content, hashlib.sha1).digest()).decode()


class AclSigner(RpcHook):
    """Adds the access key and the signature to every request. It comes last, so that it signs what others added."""

    inline = True

    def __init__(self, credentials: Credentials | RotatingCredentials) -> None:
        self._source = credentials if isinstance(credentials, RotatingCredentials) else RotatingCredentials(credentials)

    def __repr__(self) -> str:
        return f"<AclSigner {self._source.current.access_key}>"

    def before_request(self, address: str, request: Command) -> None:
        """Sign the request."""
        credentials = self._source.current
        fields = request.fields
        fields[ACCESS_KEY] = credentials.access_key
        if credentials.token:
            fields[SECURITY_TOKEN] = credentials.token
        else:
            fields.pop(SECURITY_TOKEN, None)  # signed before, with credentials that have been replaced
        fields[SIGNATURE] = sign(credentials.secret_key, fields, request.body)

    def after_response(self, address: str, request: Command, response: Command) -> None:
        """Note on an error whose request it answers: a refusal is to name the access key (see `denials`)."""
        if response.code != ResponseCode.SUCCESS:
            response.fields[ACCESS_KEY] = request.fields.get(ACCESS_KEY, "")
