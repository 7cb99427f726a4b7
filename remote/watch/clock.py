"""Seconds since a log's first line, from the stamps in it: a pure function of clock and line.

The outermost stamp counts, as it has the arrival; a log that has none is read by vLLM's own, ``11-30 19:20:05``, which
knows neither year nor zone. A bar without a stamp has its own count of seconds, from the moment when the bar began; any
other line without one has the time of the line before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from remote.watch import wrappers

_HEADER = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<date>\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?) \[?[^\]\s]+:\d+\]"
)
_HEADER_WITHIN = 300
_BAR = re.compile(
    r"\d{1,3}%(?:\|[^|]{0,40}\| ?| Completed \| )[^\[]{1,40}"
    r"\[(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<"
)
_FIRST_EPOCH = 1e8  # smaller numbers of seconds count from the start itself
_PERIODS = {wrappers.TIME_OF_DAY: 86400.0, wrappers.DAY_OF_YEAR: 365 * 86400.0}


@dataclass(frozen=True)
class Clock:
    """``now`` never goes back. ``kind`` is the stamps' that are read, empty before the first one; ``origin`` what they
    said at second 0; ``last`` what they said last. ``bar`` is what the last bar counted, ``bar_began`` when it did."""

    now: float = 0.0
    kind: str = ""
    origin: float = 0.0
    last: float = 0.0
    bar: Optional[float] = None
    bar_began: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the log carries times."""
        return bool(self.kind)


def read_line(clock: Clock, line: str) -> Clock:
    """The clock after one more line."""
    unwrapped = wrappers.unwrap(line)
    stamp = unwrapped.stamp
    if stamp is None or (clock.known and stamp.kind != clock.kind):
        match = _HEADER.search(unwrapped.text, 0, _HEADER_WITHIN)
        stamp = wrappers.header_stamp(match["date"], match["clock"]) if match else None
    if stamp is None:
        return _read_bar(clock, unwrapped.text) if clock.known and "%" in unwrapped.text else clock
    if stamp.kind != clock.kind:
        begins = not clock.known and stamp.kind == wrappers.SECONDS and stamp.value < _FIRST_EPOCH
        clock = replace(clock, kind=stamp.kind, origin=0.0 if begins else stamp.value - clock.now, last=stamp.value)
    period = _PERIODS.get(stamp.kind, 0.0)
    if period and stamp.value < clock.last - period / 2:
        clock = replace(clock, origin=clock.origin - period, last=stamp.value)  # midnight, or the new year
    return replace(clock, now=max(clock.now, stamp.value - clock.origin), last=max(clock.last, stamp.value))


def _read_bar(clock: Clock, text: str) -> Clock:
    match = _BAR.search(text, 0, _HEADER_WITHIN)
    if match is None:
        return clock
    elapsed = 3600.0 * int(match["hours"] or 0) + 60.0 * int(match["minutes"]) + int(match["seconds"])
    began = clock.now - elapsed if clock.bar is None or elapsed < clock.bar else clock.bar_began
    return replace(clock, now=max(clock.now, began + elapsed), bar=elapsed, bar_began=began)
