"""Thinning a series of points to a number that a plot can show, without losing its extremes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

Point = tuple[int, Optional[float]]
"""A step and its value, None for one that is no finite number."""


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """At most ``limit`` (4 or more) of the points, whose steps only grow.

    The first and the last one stay. Between them the steps are divided into stretches of one length, and of each the
    lowest and the highest point stay, so that a spike of one step is still to be seen. A stretch without any number
    keeps one point, so that it is still a gap.
    """
    if len(points) <= limit:
        return list(points)
    inner = points[1:-1]
    stretches = (limit - 2) // 2
    begin, width = inner[0][0], (inner[-1][0] - inner[0][0] + 1) / stretches
    kept: list[Point] = [points[0]]
    start = 0
    for number in range(stretches):
        end = start
        border = begin + (number + 1) * width
        while end < len(inner) and (inner[end][0] < border or number == stretches - 1):
            end += 1
        kept += _extremes(inner[start:end])
        start = end
    return [*kept, points[-1]]


def _extremes(stretch: Sequence[Point]) -> list[Point]:
    numbers = [(value, step) for step, value in stretch if value is not None]
    if not numbers:
        return list(stretch[:1])
    chosen = {min(numbers)[1]: min(numbers)[0], max(numbers)[1]: max(numbers)[0]}
    return sorted(chosen.items())


class Thinned:
    """A series that is added to for as long as a run lasts, in bounded memory.

    :param limit: points that ``points`` gives at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._points: list[Point] = []

    def add(self, step: int, value: Optional[float]) -> None:
        """Adds a point. A step that was there already begins anew from there: a resumed run trains it again."""
        while self._points and self._points[-1][0] >= step:
            self._points.pop()
        self._points.append((step, value))
        if len(self._points) > 8 * self._limit:
            self._points = thin(self._points, 4 * self._limit)

    def points(self) -> list[Point]:
        """The series so far."""
        return thin(self._points, self._limit)
