"""From a time to a place in a job's log: how people write times, and the log's time index. Pure.

The index holds entries ``[wall, size]``: at that time on the host's clock the log had so many bytes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Optional

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCKS = ("%H:%M:%S", "%H:%M")
_EPOCH = re.compile(r"\d{9,11}(\.\d+)?")

Entry = tuple[float, int]


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch of a time in one of the forms ``10m``, ``14:05``, ``2026-11-30 14:05``, ``1780000000``.

    A time of day is the last one that has been, in the host's time zone.

    :param now: the host's clock.
    :raises ValueError: with a sentence, for anything else.
    """
    text = text.strip()
    ago = _AGO.fullmatch(text)
    if ago:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    if _EPOCH.fullmatch(text):
        return float(text)
    for form in _FORMS:
        parsed = _parsed(text, form)
        if parsed is not None:
            return time.mktime(parsed)
    for form in _CLOCKS:
        parsed = _parsed(text, form)
        if parsed is not None:
            return _last_time_of_day(parsed, now)
    raise ValueError(f"{text!r} is no time; write 10m, 2h, 14:05, '2026-11-30 14:05' or seconds since the epoch")


def parse_index(data: bytes) -> list[Entry]:
    """The entries of an index; lines that are none are passed over."""
    entries = []
    for line in data.split(b"\n"):
        try:
            wall, size = json.loads(line)
            entries.append((float(wall), int(size)))
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue
    return [(wall, size) for wall, size in entries if size >= 0]


def offset_since(entries: Iterable[Entry], wall: float) -> int:
    """The offset from which on the log was written at ``wall`` or later.

    What was written before the next entry cannot be told apart, so up to a second more is given. Where the host's clock
    was set back, the first place counts: rather too much than a line too little.
    """
    before = 0
    for at, size in entries:
        if at >= wall:
            return before
        before = size
    return before


def _parsed(text: str, form: str) -> Optional[time.struct_time]:
    try:
        return time.strptime(text, form)
    except ValueError:
        return None


def _last_time_of_day(clock: time.struct_time, now: float) -> float:
    for days in (0, 1):
        day = time.localtime(now - days * 86400)
        at = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, clock.tm_hour, clock.tm_min, clock.tm_sec, 0, 0, -1))
        if at <= now:
            return at
    return at
