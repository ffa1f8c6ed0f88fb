"""Which answers are a broker's access control saying no, and what it says: words of two generations, one error.

The rule of this file: values in, an error or None out. RocketMQ 5's auth answers NO_PERMISSION, which it also answers
when a topic or broker takes nothing from anybody; 4.9's plain ACL answers SYSTEM_ERROR with the name of its exception.
So it is the remark that tells; one that is not known stays an ordinary `BrokerError`.
"""

from __future__ import annotations

import re
from typing import Final

from rocketstream.errors import AccessDeniedError, AuthenticationFailedError
from rocketstream.remoting.acl import ACCESS_KEY
from rocketstream.wire.codes import RequestCode, ResponseCode, request_name
from rocketstream.wire.command import Command

# Java's exception around 4.9's words, with the place in its source.
_PLAIN_ACL: Final = re.compile(r"^\S*AclException: (?P<words>.*?)(, \S+\(\S*\))?$", re.DOTALL)

_NO_KEY: Final = re.compile(r"^(username cannot be null\.|No accessKey is configured)")
_UNKNOWN_KEY: Final = re.compile(
    r"^(User:.* (is )?not found\.|No acl config for |No PlainAccessResource for accessKey=)", re.DOTALL
)
_DISABLED: Final = re.compile(r"^User:.* is disabled\.", re.DOTALL)
_WRONG_SECRET: Final = re.compile(r"^check signature failed", re.IGNORECASE)
_NOT_ALLOWED: Final = re.compile(
    r"has no permission to access (?P<resource>\S+) from |^No default permission for (?P<old>.*)$"
)
_NO_ADMIN: Final = re.compile(r"^Need admin permission for request code=")

_PUBLISHING: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
    }
)
_CONSUMING: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.QUERY_ASSIGNMENT,
    }
)
_LOOKING: Final = frozenset(
    {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP}
)

# What RocketMQ 5 asks of operators, by how a request's name begins.
_ACTIONS: Final = (
    ("CREATE", ("UPDATE_AND_CREATE_TOPIC",)),
    ("DELETE", ("DELETE_",)),
    ("UPDATE", ("UPDATE_", "INVOKE_BROKER_TO_RESET", "CLONE_", "RESUME_")),
    ("GET", ("GET_", "QUERY_", "SEARCH_", "VIEW_", "INVOKE_BROKER_TO_GET")),
)


def denial(address: str, request_code: int, response: Command) -> AccessDeniedError | None:
    """The refusal that a response is, if it is one of the broker's access control."""
    words = _words(response)
    if words is None:
        return None
    access_key = response.fields.get(ACCESS_KEY)
    resource: str | None = None
    kind: type[AccessDeniedError] = AuthenticationFailedError
    if _NO_KEY.search(words):
        advice = "pass credentials=Credentials(access_key, secret_key)"
    elif _UNKNOWN_KEY.search(words):
        advice = "the broker has no such account: check the access key, or create the account there"
    elif _DISABLED.search(words):
        advice = "enable the account at the broker, or use another"
    elif _WRONG_SECRET.search(words):
        advice = "the secret key is not the one that the broker knows for this access key"
    elif allowed := _NOT_ALLOWED.search(words):
        kind = AccessDeniedError
        resource = allowed["resource"] or allowed["old"]
        advice = f"grant it {_needed(request_code, resource)} there, or use another account"
        if request_code in _LOOKING:
            advice += "; RocketMQ 5 asks for GET beside SUB"
    elif _NO_ADMIN.search(words):
        kind, advice = AccessDeniedError, "this needs an account with admin: true"
    else:
        # An ACL's exception with words of another version: all the same a refusal, whatever for.
        kind, advice = AccessDeniedError, "its access control says so; look at the broker's accounts and permissions"
    return kind(
        address,
        response.code,
        words,
        request=request_name(request_code),
        access_key=access_key,
        resource=resource,
        advice=advice,
    )


def _words(response: Command) -> str | None:
    """What the access control said; None if it was not the access control that spoke."""
    remark = response.remark or ""
    if response.code == ResponseCode.SYSTEM_ERROR:
        plain = _PLAIN_ACL.match(remark)
        return plain["words"] if plain else None
    if response.code != ResponseCode.NO_PERMISSION:
        return None
    known = (_NO_KEY, _UNKNOWN_KEY, _DISABLED, _WRONG_SECRET, _NOT_ALLOWED)
    return remark if any(one.search(remark) for one in known) else None


def _needed(request_code: int, resource: str) -> str:
    kind = resource.partition(":")[0].lower()
    shown = resource if ":" in resource else repr(resource)
    if request_code in _PUBLISHING and kind != "group":
        return f"PUB on {shown}"
    if request_code in _CONSUMING or request_code in _PUBLISHING:
        return f"SUB on {shown}"
    name = request_name(request_code)
    for action, signs in _ACTIONS:
        if name.startswith(signs):
            return f"{action} on {shown}"
    return f"what {name} needs on {shown}"
