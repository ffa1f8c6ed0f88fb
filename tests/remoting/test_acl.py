"""Signing requests."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import AclSigner, Credentials, RotatingCredentials, sign
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


def test_replaced_credentials_sign_from_the_next_request_on():
    first, second = Credentials("key", "secret", token="sts"), Credentials("key-2", "secret-2")
    rotating = RotatingCredentials(first)
    signer = AclSigner(rotating)
    command = request(310, {"z": "last"})
    signer.before_request("x", command)
    assert command.fields["Signature"] == sign("secret", {"AccessKey": "key", "SecurityToken": "sts", "z": "last"}, b"")
    rotating.replace(second)
    assert rotating.current is second
    signer.before_request("x", command)  # the same request once more, on a new connection
    assert command.fields["Signature"] == sign("secret-2", {"AccessKey": "key-2", "z": "last"}, b"")
    assert "SecurityToken" not in command.fields
    assert "key-2" in repr(signer)


@pytest.mark.parametrize("wrong", [None, "key:secret", ("key", "secret")])
def test_only_credentials_rotate(wrong):
    with pytest.raises(ConfigurationError, match=r"must be Credentials\(access_key, secret_key\), not") as caught:
        RotatingCredentials(wrong)
    assert "secret')" not in str(caught.value)


@pytest.mark.parametrize("parts", [(7, "secret"), ("key", b"secret"), ("key", "secret", 7)])
def test_credentials_are_texts(parts):
    with pytest.raises(ConfigurationError, match="must be a text, not"):
        Credentials(*parts)
