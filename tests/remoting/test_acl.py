"""Signing requests."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import AclSigner, Credentials, sign
from rocketstream.wire.command import request


@pytest.mark.behaviour("REM-08")
def test_the_signature_covers_the_sorted_values_and_the_body():
    command = request(310, {"topic": "t", "b": "2", "a": "1"}, b"body")
    AclSigner(Credentials("key", "secret")).before_request("x", command)
    assert command.fields["AccessKey"] == "key"
    expected = hmac.new(b"secret", b"key" + b"1" + b"2" + b"t" + b"body", hashlib.sha1).digest()
    assert base64.b64decode(command.fields["Signature"]) == expected
    assert "SecurityToken" not in command.fields


def test_signing_again_replaces_the_signature_and_a_token_is_signed_too():
    command = request(310, {"z": "last"})
    signer = AclSigner(Credentials("key", "secret", token="sts"))
    signer.before_request("x", command)
    once = command.fields["Signature"]
    signer.before_request("x", command)
    assert command.fields["Signature"] == once
    assert command.fields["SecurityToken"] == "sts"
    assert once == sign("secret", {"AccessKey": "key", "SecurityToken": "sts", "z": "last"}, b"")


def test_secrets_never_show():
    credentials = Credentials("key", "s3cret", token="t0ken")
    for text in (repr(credentials), str(credentials), repr(AclSigner(credentials))):
        assert "s3cret" not in text
        assert "t0ken" not in text


@pytest.mark.parametrize("keys", [("", "secret"), ("key", "")])
def test_half_credentials_are_refused(keys):
    with pytest.raises(ConfigurationError, match="both an access key and a secret key"):
        Credentials(*keys)
