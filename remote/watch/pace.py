"""How fast the weights come in, from how much of them was there at which time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Reading:
    """The weights while they are read.

    :param marks: share of the work (0 to 1) and seconds since the weights began, growing. What is read between two
        marks is not known.
    :param next_share: the share at which the next mark will come; None where marks come as often as one looks.
    """

    marks: tuple[tuple[float, float], ...] = ()
    next_share: Optional[float] = None


@dataclass(frozen=True)
class Pace:
    """The share that is probably read by now, and the speed in shares a second; None while nothing shows it."""

    share: float
    speed: Optional[float]


def pace(reading: Reading, elapsed: float) -> Pace:
    """The pace ``elapsed`` seconds after the weights began.

    The last half of the time so far counts: the head of a checkpoint often comes from the page cache, and a disk that
    others use changes its speed. A mark that is overdue slows the speed down.
    """
    points = [(0.0, 0.0)]
    for share, seconds in reading.marks:
        if share > points[-1][0] and points[-1][1] <= seconds <= elapsed:
            points.append((min(share, 1.0), seconds))
    share, at = points[-1]
    speed = _speed(points)
    next_share = share if reading.next_share is None else max(share, min(reading.next_share, 1.0))
    gap = elapsed - at
    if speed is None:
        return Pace(share, None)
    if gap > 0 and next_share > share:
        speed = min(speed, (next_share - share) / gap)
    return Pace(min(share + speed * gap, next_share), speed)


def _speed(points: Sequence[tuple[float, float]]) -> Optional[float]:
    share, at = points[-1]
    if at <= 0:
        return None
    since, then = max((point for point in points[:-1] if point[1] <= at / 2), key=lambda point: point[1])
    return (share - since) / (at - then) if at > then else None
