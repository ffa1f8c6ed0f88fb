"""Two requests that the scripted peer of these tests knows: one it answers, one it does not."""

from __future__ import annotations

from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

ASK = RequestCode.GET_MAX_OFFSET
SILENT = RequestCode.GET_MIN_OFFSET


def ok(to: Command) -> Command:
    """The answer: what was asked."""
    return response(to, ResponseCode.SUCCESS, header=to.fields, body=to.body)
