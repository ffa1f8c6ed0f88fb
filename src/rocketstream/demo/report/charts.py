"""The plots: lines over time, stacked columns, a histogram, a strip of dots, bars, a heat map.

Each is a function from values to one drawing. Colours are classes (`c1` to `c6`) that the page's style gives, so that a
drawing looks right on white and on black.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketstream.demo.outcome import percentile
from rocketstream.demo.report.frame import Frame, Paper, columns, seconds
from rocketstream.demo.report.scales import ceiling, milliseconds, short, ticks
from rocketstream.demo.report.svg import Markup, joined, path, svg, tag

_HEIGHT = 260.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one layer of columns."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the time that has a name."""

    begin: float
    end: float
    label: str


def lines(
    title: str,
    series: Sequence[Series],
    paper: Paper,
    *,
    until: float,
    spans: Sequence[Span] = (),
    unit: str = "",
) -> Markup:
    """Lines over the seconds of the demo."""
    frame = Frame(paper.width, _HEIGHT)
    x = frame.x(0, until)
    y = frame.y(0, ceiling([value for one in series for _, value in one.points]))
    drawn: list[Markup] = [frame.horizontal_grid(y), frame.x_labels(x, ticks(0, until, 6), seconds)]
    drawn += [frame.band(x(span.begin), x(span.end), span.label) for span in spans]
    for one in series:
        places = [(x(at), y(value)) for at, value in one.points]
        if one.filled and places:
            around = [(places[0][0], frame.floor), *places, (places[-1][0], frame.floor)]
            drawn.append(tag("path", class_=f"area {one.colour}", d=path(around, close=True)))
        drawn.append(tag("path", class_=f"line {one.colour}", d=path(places)))
    if paper.tips:
        drawn += _line_tips(frame, x, y, series, unit)
    return svg(frame.width, frame.height, title, *drawn)


def _line_tips(
    frame: Frame, x: Callable[[float], float], y: Callable[[float], float], series: Sequence[Series], unit: str
) -> list[Markup]:
    moments = sorted({at for one in series for at, _ in one.points})
    by_moment = [dict(one.points) for one in series]
    made = []
    for at, (begin, end) in zip(
        moments, columns([x(at) for at in moments], frame.left, frame.width - frame.right), strict=True
    ):
        there = [(one, values[at]) for one, values in zip(series, by_moment, strict=True) if at in values]
        marks = joined(tag("circle", class_=f"dot {one.colour}", cx=x(at), cy=y(v), r=4) for one, v in there)
        texts = [("", f"{at:.1f} s"), *((one.colour, f"{one.name}: {v:,.0f}{unit}") for one, v in there)]
        made.append(frame.hover(begin, end, frame.tip(x(at), texts, marks)))
    return made


def stacked(
    title: str,
    labels: Sequence[str],
    layers: Sequence[Series],
    paper: Paper,
    *,
    spans: Sequence[Span] = (),
) -> Markup:
    """A column per label, of layers on top of each other; a layer's points are (number of the label, value)."""
    frame = Frame(paper.width, _HEIGHT)
    x = frame.x(0, len(labels))
    values = [dict(layer.points) for layer in layers]
    totals = [sum(layer.get(i, 0.0) for layer in values) for i in range(len(labels))]
    y = frame.y(0, ceiling(totals))
    drawn = [
        frame.horizontal_grid(y),
        frame.x_labels(x, [i + 0.5 for i in range(0, len(labels), _every(paper))], lambda value: labels[int(value)]),
    ]
    # Side by side where there is room, else one below the other.
    drawn += [
        frame.band(x(span.begin), x(span.end), span.label, low=i % 2 == 1 and paper.width < 500)
        for i, span in enumerate(spans)
    ]
    gap = min(2.0, (x(1) - x(0)) * 0.18)
    for i, label in enumerate(labels):
        base = 0.0
        for layer, at in zip(layers, values, strict=True):
            value = at.get(i, 0.0)
            if value:
                top, low = y(base + value), y(base)
                drawn.append(
                    tag(
                        "rect",
                        class_=f"bar {layer.colour}",
                        x=x(i) + gap / 2,
                        y=top,
                        width=x(1) - x(0) - gap,
                        height=low - top,
                    )
                )
                base += value
        if paper.tips:
            tip = [("", label)]
            # From the top of the column down, as one reads.
            tip += [(one.colour, f"{one.name}: {at.get(i, 0.0):,.0f}") for one, at in _reversed_pairs(layers, values)]
            drawn.append(frame.hover(x(i), x(i + 1), frame.tip(x(i + 0.5), tip)))
    return svg(frame.width, frame.height, title, *drawn)


def _reversed_pairs(
    layers: Sequence[Series], values: Sequence[dict[float, float]]
) -> list[tuple[Series, dict[float, float]]]:
    return list(reversed(list(zip(layers, values, strict=True))))


def _every(paper: Paper) -> int:
    """Each so manieth minute has a label."""
    return 20 if paper.width < 500 else 10


#: The edges of the histogram's columns: about as many for a millisecond as for a second.
_EDGES = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000)


def histogram(title: str, values: list[int], paper: Paper) -> Markup:
    """How many milliseconds things took: columns that grow with the time, and where half and 99 % are."""
    counts = Counter(bisect_right(_EDGES, value) - 1 for value in values)
    last = max(counts, default=0) + 1
    edges = [*_EDGES[: last + 1], *([max(values, default=0) + 1] if last >= len(_EDGES) else [])]
    frame = Frame(paper.width, _HEIGHT, top=24)
    x = frame.x(0, len(edges) - 1)
    y = frame.y(0, ceiling([float(count) for count in counts.values()]))
    step = max(1, round(len(edges) * 58 / paper.width))
    drawn = [
        frame.horizontal_grid(y),
        frame.x_labels(x, range(0, len(edges), step), lambda i: milliseconds(edges[int(i)])),
    ]
    for i in range(len(edges) - 1):
        count = counts[i]
        place = y(count)
        drawn.append(
            tag("rect", class_="bar c1", x=x(i) + 1, y=place, width=x(1) - x(0) - 2, height=frame.floor - place, rx=2)
        )
    for n, share in enumerate((0.5, 0.99)):
        at = percentile(values, share)
        i = min(bisect_right(edges, at) - 1, len(edges) - 2)
        place = x(i + (at - edges[i]) / (edges[i + 1] - edges[i]))
        label = f"p{share * 100:.0f} {milliseconds(at)}"
        anchor = "end" if place > paper.width * 0.7 else "start"
        drawn.append(tag("line", class_="mark", x1=place, x2=place, y1=frame.top - 8 - 4 * n, y2=frame.floor))
        side = -5 if anchor == "end" else 5
        drawn.append(tag("text", label, class_="note", x=place + side, y=frame.top - 4, text_anchor=anchor))
    for i in range(len(edges) - 1 if paper.tips else 0):
        share = counts[i] / max(1, len(values))
        between = f"{milliseconds(edges[i])} to {milliseconds(edges[i + 1])}"
        tip = [("", between), ("c1", f"{counts[i]:,} ({share:.1%})")]
        drawn.append(frame.hover(x(i), x(i + 1), frame.tip(x(i + 0.5), tip)))
    return svg(frame.width, frame.height, title, *drawn)


def strip(
    title: str,
    rows: Sequence[tuple[str, str]],
    dots: Sequence[tuple[float, int]],
    paper: Paper,
    *,
    until: float,
) -> Markup:
    """Dots over the seconds of the demo, in a lane per row (its name and colour): many together look denser."""
    frame = Frame(paper.width, _HEIGHT, left=84)
    x = frame.x(0, until)
    lane = (frame.floor - frame.top) / len(rows)
    drawn = [frame.x_labels(x, ticks(0, until, 6), seconds)]
    seen = Counter(row for _, row in dots)
    for i, (name, colour) in enumerate(rows):
        middle = frame.top + lane * (i + 0.5)
        drawn.append(tag("line", class_="grid", x1=frame.left, x2=frame.width - frame.right, y1=middle, y2=middle))
        drawn.append(tag("text", name, class_="axis strong", x=frame.left - 10, y=middle - 1, text_anchor="end"))
        drawn.append(
            tag(
                "text",
                f"{seen[i]:,}",
                class_=f"axis text {colour}",
                x=frame.left - 10,
                y=middle + 13,
                text_anchor="end",
            )
        )
    for n, (at, row) in enumerate(dots):
        # Spread by a fixed pattern: dots of one moment should not hide each other, and a run drawn twice be the same.
        spread = ((n * 0.618034) % 1 - 0.5) * lane * 0.62
        drawn.append(
            tag("circle", class_=f"speck {rows[row][1]}", cx=x(at), cy=frame.top + lane * (row + 0.5) + spread, r=2.4)
        )
    return svg(frame.width, frame.height, title, *drawn)


def bars(
    title: str,
    rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]],
    paper: Paper,
    *,
    left: float = 84,
    form: Callable[[float], str] = short,
) -> Markup:
    """Lying bars in groups: for each row its name and (colour, value, text) of its bars."""
    thick, gap = 16.0, 16.0
    most = max((value for _, group in rows for _, value, _ in group), default=0.0)
    height = 18 + sum(len(group) * (thick + 3) + gap for _, group in rows)
    frame = Frame(paper.width, height, left=left, right=70)
    x = frame.x(0, most or 1.0)
    drawn: list[Markup] = []
    place = 12.0
    for name, group in rows:
        tall = len(group) * (thick + 3)
        drawn.append(tag("text", name, class_="axis strong", x=left - 10, y=place + tall / 2 + 3, text_anchor="end"))
        for colour, value, text in group:
            long = x(value) - left
            bar = tag(
                "rect",
                tag("title", f"{name}: {text}"),
                class_=f"bar {colour}",
                x=left,
                y=place,
                width=long,
                height=thick,
                rx=3,
            )
            drawn.append(bar)
            drawn.append(tag("text", form(value), class_="axis", x=left + long + 7, y=place + thick - 4))
            place += thick + 3
        place += gap
    return svg(frame.width, frame.height, title, *drawn)


def heat_map(
    title: str,
    rows: Sequence[str],
    labels: Sequence[str],
    values: Sequence[Sequence[float]],
    paper: Paper,
    *,
    cell: float = 28,
    left: float = 112,
) -> Markup:
    """A square per row and label, of a stronger colour where there is more."""
    frame = Frame(paper.width, cell * len(rows) + 34, left=left, top=4)
    x = frame.x(0, len(labels))
    most = max((value for row in values for value in row), default=0.0) or 1.0
    drawn = [
        frame.x_labels(x, [i + 0.5 for i in range(0, len(labels), _every(paper))], lambda value: labels[int(value)])
    ]
    for r, name in enumerate(rows):
        top = frame.top + r * cell
        drawn.append(tag("text", name, class_="axis strong", x=left - 10, y=top + cell / 2 + 4, text_anchor="end"))
        for i, label in enumerate(labels):
            value = values[r][i]
            drawn.append(
                tag(
                    "rect",
                    tag("title", f"{name}, {label}: {value:,.0f}"),
                    class_="heat c1",
                    x=x(i) + 0.7,
                    y=top + 1,
                    width=x(1) - x(0) - 1.4,
                    height=cell - 2,
                    rx=2,
                    fill_opacity=f"{0.05 + 0.95 * value / most:.3f}",
                )
            )
    return svg(frame.width, frame.height, title, *drawn)
