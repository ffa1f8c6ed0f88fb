"""What is said of an expression that can't be understood."""

from __future__ import annotations


class SqlError(ValueError):
    """A filter expression is wrong: says where, what was found and what was expected."""

    def __init__(self, reason: str, position: int, text: str) -> None:
        shown = text if len(text) <= 200 else text[:197] + "..."
        super().__init__(f"invalid SQL92 expression at position {position}: {reason} (in {shown!r})")
        self.reason = reason
        self.position = position
