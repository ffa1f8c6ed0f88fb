"""SVG and HTML elements as text.

The rule of this file: every text and attribute is escaped here and nowhere else, so a page is well-formed whatever is
in its numbers and names.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element. `class_` is the attribute class, `stroke_width` is stroke-width; None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Markup) else escape(child, quote=False) for child in children)
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside or name not in _EMPTY else f"<{name}{written}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Several elements, one after the other."""
    return Markup("".join(parts))


def svg(width: float, height: float, title: str, *children: str, class_: str | None = None) -> Markup:
    """A drawing that takes the width it is given."""
    return tag(
        "svg",
        tag("title", title),
        *children,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        class_=class_,
    )


def path(points: Iterable[tuple[float, float]], *, close: bool = False) -> str:
    """The `d` of a line through points."""
    text = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f"M{text}{'Z' if close else ''}" if text else ""


def number(value: float) -> str:
    """A number as short as a drawing needs it."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


_EMPTY = frozenset({"path", "rect", "line", "circle", "meta", "polygon", "br"})
