"""Which answers are a broker's access control saying no."""

from __future__ import annotations

import pytest

from rocketstream.errors import AccessDeniedError, AuthenticationFailedError, BrokerError, denial_behind
from rocketstream.remoting.acl import AclSigner, Credentials
from rocketstream.remoting.replies import broker_error
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response

PLACE = ", org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm(PlainPermissionManager.java:605)"
SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def answered(code: int, remark: str | None, *, by: int = SEND, access_key: str | None = "anna") -> BrokerError:
    """The error of an answer, to a request that was signed unless there is no key."""
    asked = request(by)
    answer = response(asked, code, remark)
    if access_key is not None:
        signer = AclSigner(Credentials(access_key, "s3cret-of-anna", token="t0ken-of-anna"))
        signer.before_request("b:1", asked)
        signer.after_response("b:1", asked, answer)
    return broker_error("b:1", by, answer)


def old(words: str) -> tuple[int, str]:
    """As 4.9 says it."""
    return ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {words}{PLACE}"


def new(words: str) -> tuple[int, str]:
    """As 5.x says it."""
    return ResponseCode.NO_PERMISSION, words


@pytest.mark.parametrize(
    ("said", "by", "kind", "resource", "advice"),
    [
        (new("username cannot be null."), SEND, AuthenticationFailedError, None, "pass credentials="),
        (old("No accessKey is configured"), SEND, AuthenticationFailedError, None, "pass credentials="),
        (new("User:anna is not found."), SEND, AuthenticationFailedError, None, "no such account"),
        (old("No acl config for anna"), SEND, AuthenticationFailedError, None, "no such account"),
        (new("User:anna is disabled."), SEND, AuthenticationFailedError, None, "enable the account"),
        (new("check signature failed."), SEND, AuthenticationFailedError, None, "secret key is not the one"),
        (old("Check signature failed for accessKey=anna"), SEND, AuthenticationFailedError, None, "secret key is not"),
        (
            new("User:anna has no permission to access Topic:t from 1.2.3.4, no matched policies."),
            *(SEND, AccessDeniedError, "Topic:t", "grant it PUB on Topic:t there"),
        ),
        (
            new("User:anna has no permission to access Topic:t from 1.2.3.4, the decision is deny."),
            *(PULL, AccessDeniedError, "Topic:t", "grant it SUB on Topic:t there"),
        ),
        (
            new("User:anna has no permission to access Group:g from 1.2.3.4, no matched policies."),
            *(SEND, AccessDeniedError, "Group:g", "grant it SUB on Group:g there"),  # a message that goes back
        ),
        (old("No default permission for topic:t"), SEND, AccessDeniedError, "topic:t", "grant it PUB on topic:t"),
        (old("No default permission for group:g"), PULL, AccessDeniedError, "group:g", "grant it SUB on group:g"),
        (
            old("Need admin permission for request code=17, but accessKey=anna is not"),
            *(RequestCode.UPDATE_AND_CREATE_TOPIC, AccessDeniedError, None, "admin: true"),
        ),
        (
            new("User:anna has no permission to access Topic:t from 1.2.3.4, no matched policies."),
            *(
                RequestCode.GET_MAX_OFFSET,
                AccessDeniedError,
                "Topic:t",
                "grant it GET on Topic:t there, or use another account; RocketMQ 5 asks",
            ),
        ),
        (
            new("User:anna has no permission to access Topic:t from 1.2.3.4, no matched policies."),
            *(RequestCode.UPDATE_AND_CREATE_TOPIC, AccessDeniedError, "Topic:t", "grant it CREATE on Topic:t"),
        ),
        (
            new("User:anna has no permission to access Group:g from 1.2.3.4, no matched policies."),
            *(RequestCode.GET_CONSUME_STATS, AccessDeniedError, "Group:g", "grant it GET on Group:g"),
        ),
        (old("something that another version says"), SEND, AccessDeniedError, None, "its access control says so"),
    ],
)
def test_a_refusal_names_who_what_where_and_what_to_do(said, by, kind, resource, advice):
    error = answered(*said, by=by)
    assert type(error) is kind
    assert (error.address, error.code, error.access_key, error.resource) == ("b:1", said[0], "anna", resource)
    text = str(error)
    assert text.startswith(f"b:1 refused {RequestCode(by).name} to access key 'anna': ")
    assert advice in text
    assert "PlainPermissionManager" not in text
    assert "s3cret" not in text + repr(error)
    assert "t0ken" not in text + repr(error)


def test_whoever_has_no_credentials_is_told_so():
    error = answered(*new("username cannot be null."), access_key=None)
    assert "refused SEND_MESSAGE_V2 to a client without credentials: username cannot be null (pass" in str(error)
    assert error.access_key is None


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden"),
        (ResponseCode.NO_PERMISSION, "the topic[t] pulling message is forbidden"),
        (ResponseCode.NO_PERMISSION, None),
        (ResponseCode.SYSTEM_ERROR, "No acl config for anna"),
        (ResponseCode.SYSTEM_ERROR, None),
        (ResponseCode.TOPIC_NOT_EXIST, "User:anna is not found."),
    ],
)
def test_what_is_no_matter_of_accounts_stays_an_ordinary_error(code, remark):
    """A topic or broker that takes nothing from anybody answers NO_PERMISSION too."""
    assert type(answered(code, remark)) is BrokerError


def test_the_refusal_behind_another_error():
    refusal = answered(*new("check signature failed."))
    outer = RuntimeError("outer")
    outer.__cause__ = ValueError("inner")
    assert denial_behind(outer) is None
    outer.__cause__.__cause__ = refusal
    assert denial_behind(outer) is refusal
    assert denial_behind(refusal) is refusal
    assert denial_behind(None) is None


def test_only_errors_are_marked_with_whose_they_are():
    asked = request(SEND)
    AclSigner(Credentials("anna", "secret")).before_request("b:1", asked)
    answer = response(asked, ResponseCode.SUCCESS)
    AclSigner(Credentials("anna", "secret")).after_response("b:1", asked, answer)
    assert answer.fields == {}
    assert isinstance(answer, Command)
