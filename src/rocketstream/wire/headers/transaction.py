"""Transactions: their end, and a broker's question how one went."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, RpcRequestHeader, header
from rocketstream.wire.java import Int32, Int64


@header
class EndTransactionRequestHeader(RpcRequestHeader):
    """END_TRANSACTION; `commit_or_rollback` is a `TransactionFlag`, `topic` is 5.x's."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


@header
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """CHECK_TRANSACTION_STATE, from broker to producer; the half message is the body."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE: check a transaction again that the broker gave up on."""

    topic: str | None = None
    msg_id: str | None = None
