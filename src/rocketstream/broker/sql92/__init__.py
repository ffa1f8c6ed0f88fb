"""RocketMQ's SQL92 filter: an expression over a message's properties, compiled to a function.

It takes what RocketMQ 5.5.0's `SelectorParser` takes and rejects what that rejects, oddities included: what follows a
complete expression is not looked at, `0.0` is too small a number, text is never ordered. `lexer` finds the words,
`parser` the grammar, `operands` what each operator means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from rocketstream.broker.sql92.errors import SqlError
from rocketstream.broker.sql92.parser import parse

__all__ = ["SqlError", "compile_expression"]


@lru_cache(maxsize=256)
def compile_expression(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Whether properties match the expression; null and what can't be compared do not. `SqlError` when it is wrong."""
    evaluate = parse(text)

    def matches(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except (ValueError, RecursionError):
            return False

    return matches
