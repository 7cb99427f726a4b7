"""Curves as lines of text: braille dots, or one ASCII sign a cell. Pure, and one colour a curve, so that it is cheap.

A frame of 60 by 10 cells is at most 600 characters, however many points there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.content import Content

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of a dot by its row and column in a cell (Unicode, block Braille Patterns)."""

_MUTED = "$foreground-muted"
_LEAST_WIDTH, _LEAST_HEIGHT = 8, 2
_LOG_RATIO = 20.0
"""From this ratio of the highest to the lowest value on, a scale of powers shows more than an even one."""


@dataclass(frozen=True)
class Curve:
    """A line through points whose x only grows; an unknown y interrupts it.

    :param sign: one character that stands at the end of the line: it names the curve where there is no colour.
    """

    points: Sequence[tuple[float, float | None]]
    sign: str
    style: str = "$primary"


@dataclass(frozen=True)
class Scale:
    """How values become heights: from ``low`` to ``high``, evenly or by their logarithm."""

    low: float
    high: float
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """The height of a value, 0 to 1."""
        low, high, value = (self._even(number) for number in (self.low, self.high, value))
        return 0.5 if high <= low else max(0.0, min(1.0, (value - low) / (high - low)))

    def value(self, share: float) -> float:
        """The value at a height."""
        low, high = self._even(self.low), self._even(self.high)
        even = low + share * (high - low)
        return math.exp(even) if self.logarithmic else even

    def _even(self, number: float) -> float:
        return math.log(max(number, 1e-300)) if self.logarithmic else number


def scale(curves: Iterable[Curve], low: float | None = None, high: float | None = None) -> Scale | None:
    """The scale that shows all points, or that of the given ends; None where there is no point.

    It is logarithmic where all values are above 0 and far apart: the first steps' loss would flatten all others.
    """
    values = [value for curve in curves for _, value in curve.points if value is not None and math.isfinite(value)]
    if not values:
        return None
    least = min(values) if low is None else low
    most = max(values) if high is None else high
    if least == most:
        least, most = least - abs(least or 1.0) * 0.05, most + abs(most or 1.0) * 0.05
    return Scale(least, most, least > 0 and most / least >= _LOG_RATIO)


def plot(
    curves: Sequence[Curve],
    width: int,
    height: int,
    across: Scale | None = None,
    upward: Scale | None = None,
    marks: Sequence[float] = (),
    ascii: bool = False,
) -> list[Content]:
    """The curves in ``height`` lines of ``width`` cells: labels at the left, the axis with its marks below.

    :param across, upward: the scales of x and y; by default those that show all points.
    :param marks: places on the x axis, such as the beginnings of epochs; the last line numbers those that fit.
    """
    upward = upward or scale(curves)
    across = across or _across(curves)
    if upward is None or across is None:
        return []
    rows = height - 2
    labels = _labels(upward, rows)
    gutter = max((len(label) for label in labels), default=0) + 1
    columns = width - gutter
    if columns < _LEAST_WIDTH or rows < _LEAST_HEIGHT:
        return []
    canvas = _Canvas(columns, rows, ascii)
    for curve in curves:
        canvas.draw(curve, across, upward)
    edge = "|" if ascii else "│"
    lines = [
        Content.assemble((f"{label:>{gutter - 1}}{edge}", _MUTED), canvas.line(row)) for row, label in enumerate(labels)
    ]
    return [*lines, *_axis(across, columns, gutter, marks, ascii)]


def _across(curves: Iterable[Curve]) -> Scale | None:
    places = [x for curve in curves for x, _ in curve.points]
    return Scale(min(places), max(places)) if places else None


def _labels(upward: Scale, rows: int) -> list[str]:
    """The value at the top, in the middle and at the bottom; nothing between."""
    shown = {0, rows - 1, *({rows // 2} if rows >= 5 else ())}
    return [f"{upward.value(1 - row / max(1, rows - 1)):.3g}" if row in shown else "" for row in range(rows)]


def _axis(across: Scale, columns: int, gutter: int, marks: Sequence[float], ascii: bool) -> list[Content]:
    """The line below the curves with a tick at each mark, and below it first and last x and the marks' numbers."""
    line = ["-" if ascii else "─"] * columns
    words = [" "] * columns
    first, last = f"{across.low:,.0f}", f"{across.high:,.0f}"
    _write(words, 0, first)
    _write(words, columns - len(last), last)
    for number, mark in enumerate(marks, 1):
        if not across.low <= mark <= across.high:
            continue
        place = round(across.share(mark) * (columns - 1))
        line[place] = "+" if ascii else "┴"
        text = f"e{number}"
        room = words[max(0, place - 1) : place + len(text) + 1]
        if place + len(text) < columns and all(sign == " " for sign in room):
            _write(words, place, text)
    corner = "+" if ascii else "└"
    return [
        Content.styled(" " * (gutter - 1) + corner + "".join(line), _MUTED),
        Content.styled(" " * gutter + "".join(words), _MUTED),
    ]


def _write(line: list[str], place: int, text: str) -> None:
    for offset, sign in enumerate(text):
        if 0 <= place + offset < len(line):
            line[place + offset] = sign


class _Canvas:
    """Cells with the dots of the curves; where two curves share a cell it has the colour of the later one."""

    def __init__(self, columns: int, rows: int, ascii: bool) -> None:
        self._columns, self._rows, self._ascii = columns, rows, ascii
        self._across, self._down = (1, 1) if ascii else (2, 4)
        self._signs: dict[tuple[int, int], str] = {}
        self._bits: dict[tuple[int, int], int] = {}
        self._styles: dict[tuple[int, int], str] = {}

    def draw(self, curve: Curve, across: Scale, upward: Scale) -> None:
        """Draws lines between neighbouring points, and the curve's sign at its last one."""
        before: tuple[int, int] | None = None
        last: tuple[int, int] | None = None
        for x, y in curve.points:
            if y is None or not math.isfinite(y):
                before = None
                continue
            place = self._place(across.share(x), upward.share(y))
            for dot in [place] if before is None else _line(before, place):
                self._dot(dot, curve)
            before = last = place
        if last is not None:
            self._signs[self._cell(last)] = curve.sign
            self._styles[self._cell(last)] = curve.style

    def line(self, row: int) -> Content:
        """One line of cells."""
        pieces = []
        for style, cells in groupby(range(self._columns), lambda column: self._styles.get((column, row), "")):
            text = "".join(self._sign(column, row) for column in cells)
            pieces.append((text, style) if style else text)
        return Content.assemble(*pieces)

    def _sign(self, column: int, row: int) -> str:
        cell = (column, row)
        if cell in self._signs:
            return self._signs[cell]
        bits = self._bits.get(cell, 0)
        return chr(_BRAILLE + bits) if bits else " "

    def _place(self, x: float, y: float) -> tuple[int, int]:
        columns, rows = self._columns * self._across, self._rows * self._down
        return round(x * (columns - 1)), round((1 - y) * (rows - 1))

    def _cell(self, dot: tuple[int, int]) -> tuple[int, int]:
        return dot[0] // self._across, dot[1] // self._down

    def _dot(self, dot: tuple[int, int], curve: Curve) -> None:
        cell = self._cell(dot)
        if self._ascii:
            self._signs[cell] = curve.sign
        else:
            self._bits[cell] = self._bits.get(cell, 0) | _DOTS[dot[1] % 4][dot[0] % 2]
        self._styles[cell] = curve.style


def _line(begin: tuple[int, int], end: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """The dots between two dots, both included."""
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for step in range(steps + 1):
        share = step / steps
        yield round(begin[0] + share * (end[0] - begin[0])), round(begin[1] + share * (end[1] - begin[1]))
