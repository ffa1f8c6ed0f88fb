"""How a service says no: a response code with a remark, raised from wherever it was noticed."""

from __future__ import annotations

from rocketstream.wire.codes import ResponseCode, code_name


class Refusal(Exception):
    """A request is answered with this code and remark, in RocketMQ's words."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(f"{code_name(code)}: {remark}")
        self.code = code
        self.remark = remark
