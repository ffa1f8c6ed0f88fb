"""Access control: who we are, signed into every request.

RocketMQ's plain ACL (4.9) and auth 2.0 (5.x) share one scheme: HMAC-SHA1 over the values of the header fields, sorted
by name, followed by the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.hooks import RpcHook
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


def sign(secret_key: str, fields: dict[str, str], body: bytes) -> str:
    """The signature of a request with these header fields (a signature among them does not count) and this body."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    content = values.encode() + body
    return base64.b64encode(hmac.new(secret_key.encode(), content, hashlib.sha1).digest()).decode()


class AclSigner(RpcHook):
    """Adds the access key and the signature to every request. It comes last, so that it signs what others added."""

    inline = True

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"<AclSigner {self._credentials.access_key}>"

    def before_request(self, address: str, request: Command) -> None:
        """Sign the request."""
        fields = request.fields
        fields[ACCESS_KEY] = self._credentials.access_key
        if self._credentials.token:
            fields[SECURITY_TOKEN] = self._credentials.token
        fields[SIGNATURE] = sign(self._credentials.secret_key, fields, request.body)
