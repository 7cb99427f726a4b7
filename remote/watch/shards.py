"""How much of a checkpoint's work is done after each of its files, where their sizes are not known.

A shard that is short is short in every start; one that was quick in some of them only came from the page cache. The
median over earlier starts, with one start of equal shards among them, holds the first and forgets the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import median

STARTS = 6
"""Earlier starts that are looked at, the newest ones."""

_LONGEST = 1.5
"""A shard counts at most so many times the usual one: files are cut at one size, so a longer one met a slow disk."""


def by_size(sizes: Sequence[float]) -> tuple[float, ...]:
    """The share of all bytes after each file; empty where there are none."""
    total = sum(sizes)
    return tuple(done / total for done in accumulate(sizes)) if total > 0 else ()


def learned(files: int, past: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """The share of the work after each of ``files`` files.

    :param past: of earlier starts, oldest first, the shares of their time after each file; those of another number of
        files are left out.
    """
    if files < 1:
        return ()
    steps = [_steps(marks) for marks in past if len(marks) == files][-STARTS:]
    works = [median([1.0, *(step[place] for step in steps)]) if steps else 1.0 for place in range(files)]
    return by_size(works)


def _steps(marks: Sequence[float]) -> tuple[float, ...]:
    """Each file's time in terms of the usual one's."""
    own = [after - before for before, after in zip((0.0, *marks), marks)]
    usual = median(own) or 1.0 / len(own)
    return tuple(min(step / usual, _LONGEST) for step in own)


def marks(counts: Sequence[tuple[float, float]], files: int) -> tuple[float, ...]:
    """For each file the share of the time after which it was read; empty where that is not known.

    :param counts: files read, and seconds since the weights began, in order; several files may pass in one step.
    """
    first: dict[int, float] = {0: 0.0}
    for done, seconds in counts:
        first.setdefault(int(done), seconds)
    points = sorted((done, seconds) for done, seconds in first.items() if 0 <= done <= files)
    last = points[-1][1]
    if files < 1 or points[-1][0] != files or last <= 0:
        return ()
    shares: list[float] = []
    for (done, since), (after, until) in zip(points, points[1:]):
        for place in range(done + 1, after + 1):
            shares.append(min(1.0, (since + (until - since) * (place - done) / (after - done)) / last))
    return tuple(accumulate(shares, max))
