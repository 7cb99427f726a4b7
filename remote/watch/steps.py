"""Counted work by the clock: how fast it goes, how long its pauses are, when it will be done, whether it stands. Pure.

The same for the optimiser steps of a training run and for rows of a data set. A rate comes only from counts that were
seen to arrive one after another; what lies between them and is no work (a validation, a checkpoint, a restart) is a
pause, and the time until the end has room for the pauses that will come.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Optional

from remote.protocol.progress import Eta

RECENT_STEPS, RECENT_SECONDS = 8, 10.0
"""The rate of now is that of the last intervals, at least so many and so many seconds of them."""

KEPT = 60
"""Arrivals that are kept."""

WARM_UP_STEPS = 20
"""The first steps compile and fill caches: they do not count once there are others."""

OUTLIER = 5.0
"""An interval that took this many times the median one was interrupted by something that has no line of its own."""

HALF_LIFE = 300.0
"""Seconds of work after which its rate counts half in the time that is left."""

LEAST_STILL, FIRST_STILL = 30.0, 600.0
"""Seconds without a step that are never called a stall: usually, and where nothing has shown yet what is usual."""

_PAUSES = 8
_FEW = (0.25, 1.5)  # of the only pause that was seen, a range for the others
_ROUGH = 0.05  # of the time that is left, either way: what a steady rate varies by


@dataclass(frozen=True)
class Point:
    """Steps that were done at an arrival time; ``gap`` when something else than work lay before it."""

    at: float
    steps: int
    gap: bool


@dataclass(frozen=True)
class Steps:
    """What has arrived so far.

    :param first: the count before the first step of this start.
    :param gap: whatever comes next, time passed that was no step's.
    :param paused: a pause of the run itself has begun; a gap without one is a start.
    :param epoch: that of the last step, None where the work has none.
    :param worked, done: seconds and steps of this start, pauses left out; ``lately`` the same with the past fading, and
        without the first steps once there are others (``warm``).
    :param pauses: seconds of the last pauses between epochs; ``breaks`` the seconds of all others.
    :param longest: the longest interval between two arrivals that was no pause.
    """

    points: tuple[Point, ...] = ()
    first: Optional[int] = None
    gap: bool = True
    paused: bool = False
    epoch: Optional[int] = None
    worked: float = 0.0
    done: int = 0
    lately: tuple[float, float] = (0.0, 0.0)
    warm: bool = False
    pauses: tuple[float, ...] = ()
    breaks: float = 0.0
    longest: float = 0.0


def pause(steps: Steps) -> Steps:
    """Something else than a step was told of: a validation, a checkpoint, another phase."""
    return steps if steps.gap and steps.paused else replace(steps, gap=True, paused=bool(steps.points))


def arrived(steps: Steps, count: int, at: Optional[float], epoch: Optional[int] = None) -> Steps:
    """So many steps are done, seen ``at``; None for an old record, whose time is not known."""
    last = steps.points[-1] if steps.points else None
    if last is not None and count <= last.steps:
        if count == last.steps and at is not None:
            return steps
        steps = replace(steps, points=(), first=None, gap=True, paused=False)  # a restart: a new rate begins
        last = None
    first = count - 1 if steps.first is None else steps.first
    if at is None:
        return replace(steps, points=(), first=first, gap=True, paused=False, epoch=epoch)
    if last is not None and last.at == at and not steps.gap:  # a pipe may hold steps back: they are one point
        return replace(steps, points=(*steps.points[:-1], replace(last, steps=count)), first=first, epoch=epoch)
    if last is not None:
        steps = _passed(steps, last, count, at, epoch)
    points = (*steps.points, Point(at, count, steps.gap))[-KEPT:]
    return replace(steps, points=points, first=first, gap=False, paused=False, epoch=epoch)


def rate(steps: Steps) -> Optional[float]:
    """Steps a second now, without pauses; None until two have arrived.

    It is the sum of steps over the sum of their seconds, of those intervals that are no outliers: a median of single
    intervals would be as coarse as the polling of the log.
    """
    intervals = [
        (point.steps - before.steps, point.at - before.at, before.steps >= (steps.first or 0) + WARM_UP_STEPS)
        for before, point in zip(steps.points, steps.points[1:])
        if not point.gap and point.at > before.at and point.steps > before.steps
    ]
    warm = [interval for interval in intervals if interval[2]]
    chosen = warm if len(warm) >= 3 else intervals
    recent: list[tuple[int, float]] = []
    for count, seconds, _ in reversed(chosen):
        recent.append((count, seconds))
        if len(recent) >= RECENT_STEPS and sum(seconds for _, seconds in recent) >= RECENT_SECONDS:
            break
    if not recent:
        return None
    usual = statistics.median(seconds / count for count, seconds in recent)
    kept = [(count, seconds) for count, seconds in recent if seconds <= OUTLIER * usual * count]
    return sum(count for count, _ in kept) / sum(seconds for _, seconds in kept)


def overall(steps: Steps) -> Optional[float]:
    """Steps a second over all that was seen of this start, pauses left out; None until two have arrived."""
    return steps.done / steps.worked if steps.worked > 0 and steps.done else None


def eta(
    steps: Steps, now: float, total: Optional[int], epoch_length: Optional[int] = None, what: str = "steps"
) -> Optional[Eta]:
    """When all will be done, ``now`` counted from; None while the total or the rate is not known.

    :param epoch_length: steps after which there is a pause; None where there is none, or it is not known.
    """
    last, lately = (steps.points[-1] if steps.points else None), steps.lately
    recent = rate(steps)
    if total is None or last is None or recent is None or not lately[0]:
        return None
    left = max(0, total - last.steps)
    rates = [recent, lately[1] / lately[0], overall(steps) or recent]
    since = max(0.0, now - last.at)
    ends = -(-left // epoch_length) if epoch_length else 0
    pausing = steps.gap or (epoch_length is not None and left % epoch_length == 0)  # or it is about to begin
    breaks = steps.breaks / steps.done * left if steps.done else 0.0

    def whole(speed: float, each: float) -> float:
        work = max(0.0, left / speed - (0.0 if pausing else min(since, 1 / speed)))
        running = max(0.0, each - since) if pausing else 0.0
        return work + breaks + ends * each + running

    pauses = steps.pauses or (0.0,)
    middle = whole(rates[1], statistics.median(pauses))
    if len(pauses) == 1:  # often longer than those after it, which start nothing for the first time
        pauses = (_FEW[0] * pauses[0], _FEW[1] * pauses[0])
    low = min(middle, whole(max(rates), min(pauses))) * (1 - _ROUGH)
    high = max(middle, whole(min(rates), max(pauses))) * (1 + _ROUGH)
    share = min(0.99, last.steps / total) if total > 0 else 0.0
    return Eta(round(middle, 1), round(low, 1), round(high, 1), _source(steps, ends, what), round(share, 4))


def stall(steps: Steps, now: float, what: str = "steps") -> str:
    """That nothing has arrived for longer than ever; empty where that is not so, or the work has not begun."""
    if not steps.points:
        return ""
    still = now - steps.points[-1].at
    usual = max(steps.pauses, default=0.0) if steps.gap else steps.longest
    if still <= (max(LEAST_STILL, 2 * usual) if usual else FIRST_STILL):
        return ""
    before = f"the longest {'pause' if steps.gap else 'wait'} so far was {usual:.0f} s" if usual else "no pause before"
    return f"Stalled: no {what} for {still:.0f} s ({before})."


def _passed(steps: Steps, last: Point, count: int, at: float, epoch: Optional[int]) -> Steps:
    """The time since the last arrival, counted as work, as a pause, or as nothing where it was a start."""
    seconds, more = max(0.0, at - last.at), count - last.steps
    usual = rate(steps)
    own = more / usual if usual else 0.0
    if steps.gap:
        if not steps.paused:
            return steps
        rest = max(0.0, seconds - own)
        if epoch is not None and epoch != steps.epoch:
            return replace(steps, pauses=(*steps.pauses, rest)[-_PAUSES:])
        return replace(steps, breaks=steps.breaks + rest)
    if usual and len(steps.points) > RECENT_STEPS and seconds > OUTLIER * own and seconds > 1.0:
        return replace(steps, breaks=steps.breaks + seconds - own, longest=max(steps.longest, seconds))
    warm = last.steps >= (steps.first or 0) + WARM_UP_STEPS
    if warm and not steps.warm:
        steps = replace(steps, warm=True, lately=(0.0, 0.0))
    fade = 0.5 ** (seconds / HALF_LIFE)
    return replace(
        steps,
        worked=steps.worked + seconds,
        done=steps.done + more,
        lately=(steps.lately[0] * fade + seconds, steps.lately[1] * fade + more),
        longest=max(steps.longest, seconds),
    )


def _source(steps: Steps, ends: int, what: str) -> str:
    counted = f"from the rate of {steps.done:,} {what}"
    if not ends:
        return counted
    if not steps.pauses:
        return f"{counted}, without validation and checkpoints, of which none was seen yet"
    return f"{counted} and {_plural(len(steps.pauses), 'pause')} for validation and checkpoints, {ends} to come"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
