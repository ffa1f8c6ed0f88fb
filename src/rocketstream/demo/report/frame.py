"""What plots have in common: a field with axes, a grid, and a tip that shows values where the pointer is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocketstream.demo.report.scales import Scale, short, ticks
from rocketstream.demo.report.svg import Markup, joined, number, tag

_LINE = 17
_NOTHING = Markup("")
_LETTER = 6.6  # about the width of one in a tip


@dataclass(frozen=True, slots=True)
class Paper:
    """What a plot is drawn on: how wide it is, and whether there is a pointer to show tips to."""

    width: float
    tips: bool = True


HALF = Paper(560)
"""Half of a wide page."""
FULL = Paper(1_150)
NARROW = Paper(400, tips=False)
"""A telephone."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The field of a plot inside its drawing."""

    width: float
    height: float
    left: float = 44
    right: float = 14
    top: float = 12
    bottom: float = 26

    def x(self, low: float, high: float) -> Scale:
        """Values to places from left to right."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Scale:
        """Values to places from the bottom up."""
        return Scale(low, high, self.height - self.bottom, self.top)

    @property
    def floor(self) -> float:
        """Where the lower axis is."""
        return self.height - self.bottom

    def horizontal_grid(self, y: Scale, about: int = 4, form: Callable[[float], str] = short) -> Markup:
        """Lines at round values, with the values beside them."""
        lines = []
        for value in ticks(y.low, y.high, about):
            place = y(value)
            lines.append(
                tag("line", class_="grid", x1=self.left, x2=self.width - self.right, y1=place, y2=place)
                + tag("text", form(value), class_="axis", x=self.left - 7, y=place + 4, text_anchor="end")
            )
        return joined(Markup(line) for line in lines)

    def x_labels(self, x: Scale, values: Iterable[float], form: Callable[[float], str]) -> Markup:
        """Values below the field."""
        made = []
        for value in values:
            label = form(value)
            # The outermost labels end with the field, so that nothing sticks out.
            half = len(label) * 3.4
            place = min(max(x(value), half), self.width - half)
            made.append(tag("text", label, class_="axis", x=place, y=self.height - 7, text_anchor="middle"))
        return joined(made)

    def band(self, begin: float, end: float, label: str, *, low: bool = False) -> Markup:
        """A part of the field that is marked, with a word at its top."""
        middle = (begin + end) / 2
        half = len(label) * 3.2
        middle = min(max(middle, self.left + half), self.width - self.right - half)
        return joined(
            (
                tag("rect", class_="band", x=begin, y=self.top, width=end - begin, height=self.floor - self.top),
                tag("text", label, class_="note", x=middle, y=self.top + (26 if low else 12), text_anchor="middle"),
            )
        )

    def tip(self, at: float, lines: Sequence[tuple[str, str]], marks: Markup = _NOTHING) -> Markup:
        """A box with a line per value (its colour's class, its text), on the side of `at` where there is room."""
        wide = max(len(text) for _, text in lines) * _LETTER + 26
        left = at + 10 if at + 10 + wide < self.width else max(0.0, at - 10 - wide)
        rows = [
            (tag("circle", class_=f"dot {colour}", cx=left + 11, cy=self.top + 14 + i * _LINE, r=4) if colour else "")
            + tag("text", text, class_="tip-text", x=left + (20 if colour else 10), y=self.top + 18 + i * _LINE)
            for i, (colour, text) in enumerate(lines)
        ]
        box = tag("rect", class_="tip-box", x=left, y=self.top, width=wide, height=len(lines) * _LINE + 10, rx=6)
        ruler = tag("line", class_="ruler", x1=at, x2=at, y1=self.top, y2=self.floor)
        return tag("g", ruler, marks, box, *(Markup(row) for row in rows), class_="tip")

    def hover(self, begin: float, end: float, tip: Markup) -> Markup:
        """A column that shows its tip while the pointer is in it."""
        field = tag("rect", class_="field", x=begin, y=self.top, width=end - begin, height=self.floor - self.top)
        return tag("g", field, tip, class_="hover")


def columns(places: Sequence[float], first: float, last: float) -> list[tuple[float, float]]:
    """Around each place the column that ends half-way to its neighbours."""
    if not places:
        return []
    edges = [first, *((a + b) / 2 for a, b in pairwise(places)), last]
    return list(pairwise(edges))


def seconds(value: float) -> str:
    """A moment of the demo on an axis."""
    return f"{number(value)} s"
