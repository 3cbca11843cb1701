"""Curves as SVG pictures, from numbers alone.

Axes begin at zero and name their units; each series is one line; a description is for readers that do not see the
picture. The colours follow the reader's preference for light or dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 110, 40, 50  # margins; the names of the lines stand on the right
_TICKS = 5
_DASHES = ("", "6 4", "2 3")  # lines differ in more than their colour
_STYLE = """
  .page { fill: #ffffff } text { fill: #24292f; font: 12px sans-serif } .title { font-size: 14px; font-weight: bold }
  .grid { stroke: #d0d7de } .line { fill: none; stroke-width: 2 }
  .s0 { stroke: #0550ae } .s1 { stroke: #bc4c00 } .s2 { stroke: #1a7f37 }
  .d0 { fill: #0550ae } .d1 { fill: #bc4c00 } .d2 { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d }
    .s0 { stroke: #79c0ff } .s1 { stroke: #ffa657 } .s2 { stroke: #7ee787 }
    .d0 { fill: #79c0ff } .d1 { fill: #ffa657 } .d2 { fill: #7ee787 }
  }
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One series of points in the order of x."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one axis; labels name the unit."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]

    @property
    def description(self) -> str:
        """The chart as a sentence, for readers that do not see it."""
        parts = []
        for line in self.lines:
            (first_x, first_y), (last_x, last_y) = line.points[0], line.points[-1]
            highest = max(y for _, y in line.points)
            parts.append(
                f"{line.name}: {number(first_y)} at {number(first_x)}, {number(last_y)} at {number(last_x)}, "
                f"at most {number(highest)}"
            )
        return f"{self.title}. {self.y_label} over {self.x_label}. {'; '.join(parts)}."


def number(value: float) -> str:
    """A number as people read it: three digits that count, thousands apart."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(highest: float) -> list[float]:
    """Round numbers from 0 that reach ``highest``: steps of 1, 2 or 5 times a power of ten."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * at for at in range(math.ceil(highest / step - 1e-9) + 1)]


def svg(chart: Chart) -> str:
    """The picture; the same chart always gives the same text."""
    if not chart.lines or not all(line.points for line in chart.lines):
        raise ValueError(f"{chart.title}: a line without points cannot be drawn")
    xs, ys = ticks(_highest(chart, 0)), ticks(_highest(chart, 1))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: Point) -> Point:
        return LEFT + width * point[0] / xs[-1], TOP + height * (1 - point[1] / ys[-1])

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title description">',
        f'<title id="title">{escape(chart.title)}</title>',
        f'<desc id="description">{escape(chart.description)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(LEFT, 22, chart.title, "title"),
    ]
    for value in ys:
        _, y = place((0.0, value))
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, number(value), anchor="end"))
    for value in xs:
        x, _ = place((value, 0.0))
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + height}"/>')
        parts.append(_text(x, TOP + height + 18, number(value), anchor="middle"))
    parts.append(_text(LEFT + width / 2, HEIGHT - 10, chart.x_label, anchor="middle"))
    middle = TOP + height / 2
    turned = f' transform="rotate(-90 16 {middle:.1f})"'
    parts.append(_text(16, middle, chart.y_label, anchor="middle", more=turned))
    label_heights = _apart([place(line.points[-1])[1] for line in chart.lines])
    for at, line in enumerate(chart.lines):
        placed = [place(point) for point in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        dashes = f' stroke-dasharray="{_DASHES[at % 3]}"' if _DASHES[at % 3] else ""
        parts.append(f'<polyline class="line s{at % 3}" points="{path}"{dashes}/>')
        if len(placed) <= 12:
            parts += [f'<circle class="d{at % 3}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed]
        parts.append(_text(placed[-1][0] + 8, label_heights[at] + 4, line.name))
    return "\n".join([*parts, "</svg>", ""])


def _highest(chart: Chart, axis: int) -> float:
    return max(point[axis] for line in chart.lines for point in line.points)


def _apart(heights: Sequence[float], gap: float = 14.0) -> list[float]:
    """The heights of labels, moved down until none covers another."""
    found, last = [0.0] * len(heights), -math.inf
    for at in sorted(range(len(heights)), key=lambda at: heights[at]):
        last = found[at] = max(heights[at], last + gap)
    return found


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "start", more: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
