"""How fast something grows, from what it measured at different times. Pure.

The window is an hour: long enough that a checkpoint every ten minutes is a rate and not a jump, short enough to follow
a run that has begun or ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Optional

WINDOW_SECONDS = 3600.0
SHORTEST_SECONDS = 60.0
"""Two measurements closer together say nothing about an hour."""

SPACING_SECONDS = 30.0


class Growth:
    """The growth of many values by name."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}

    def note(self, name: str, at: float, value: int) -> None:
        """Takes one measurement.

        :param at: seconds of a clock that only goes forward.
        """
        points = self._points.setdefault(name, deque())
        if len(points) > 1 and at - points[-2][0] < SPACING_SECONDS:
            points.pop()  # the newest one moves on until it is far enough from the one before it
        points.append((at, value))
        while at - points[0][0] > WINDOW_SECONDS:
            points.popleft()

    def rate(self, name: str) -> Optional[float]:
        """Units an hour; negative where it shrinks, None while that is not known."""
        points = self._points.get(name)
        if not points or points[-1][0] - points[0][0] < SHORTEST_SECONDS:
            return None
        (begin, first), (end, last) = points[0], points[-1]
        return (last - first) / (end - begin) * 3600

    def keep(self, names: Iterable[str]) -> None:
        """Forgets all others."""
        for name in self._points.keys() - set(names):
            del self._points[name]


def seconds_until(free: int, rate: Optional[float]) -> Optional[float]:
    """How long ``free`` bytes last at a rate in bytes an hour; None where it does not grow."""
    return free / rate * 3600 if rate is not None and rate > 0 else None
