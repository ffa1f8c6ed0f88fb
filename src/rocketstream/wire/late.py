"""What a class has, but makes only when it is first asked for.

There are some 150 headers and bodies, and most programs use a dozen: to write and compile the conversions of all of
them took a tenth of a second of every start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Late:
    """An attribute of a class that replaces itself with what `make` returns."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, owner: type, name: str, make: Callable[[], Any]) -> None:
        self._owner = owner
        self._name = name
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(self._owner, self._name, self._make())
        return getattr(owner if instance is None else instance, self._name)


def add_late(owner: type, name: str, make: Callable[[], Any]) -> None:
    """Give a class an attribute that is made when it is first asked for."""
    setattr(owner, name, Late(owner, name, make))
