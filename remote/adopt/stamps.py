"""When the lines were written that were in a log before we came: from vLLM's own stamps, checked against the kernel.

vLLM stamps its lines ``MM-DD HH:MM:SS`` without year and zone, in whatever zone its container has. The process's start
and the file's last change are on this host's clock, so a reading of the stamps is taken only when it lies between them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Optional

_STAMP = re.compile(r"\b(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\b")
_WITHIN = 300  # of a line: the stamp stands in its header

TOLERANCE = 5.0
FIRST_LINE_SECONDS = 600.0
"""A start says its first word within this time: imports from a slow file system take minutes."""

ZONE_STEP = 900
"""Zones differ by quarters of an hour."""

_DAY = 86400.0


def ages(lines: Sequence[str], started: float, modified: float) -> Optional[list[float]]:
    """Seconds from ``started`` to each line; None when the stamps cannot be told.

    A line without a stamp, such as a progress bar, has that of the line before it.

    :param lines: the lines of one start, from its first one on.
    :param started: when the process began, wall seconds; ``modified`` when the log was last written to.
    """
    stamps = [_stamp(line, modified) for line in lines]
    known = [stamp for stamp in stamps if stamp is not None]
    if not known:
        return None
    shift = _shift(known[0], known[-1], started, modified)
    if shift is None:
        return None
    found, last = [], known[0]
    for stamp in stamps:
        last = last if stamp is None else max(last, stamp)
        found.append(max(0.0, last + shift - started))
    return found


def _shift(first: float, last: float, started: float, modified: float) -> Optional[float]:
    """What to add to stamps that were read in this host's zone: nothing where that fits, else whole quarters."""
    if started - TOLERANCE <= first and last <= modified + TOLERANCE:
        return 0.0
    quarters = range(round((started - first) / ZONE_STEP) - 1, round((started - first) / ZONE_STEP) + 3)
    fitting = [
        float(number * ZONE_STEP)
        for number in quarters
        if -TOLERANCE <= first + number * ZONE_STEP - started <= FIRST_LINE_SECONDS
        and last + number * ZONE_STEP <= modified + TOLERANCE
        and abs(number * ZONE_STEP) <= _DAY
    ]
    return min(fitting, key=abs) if fitting else None


def _stamp(line: str, modified: float) -> Optional[float]:
    match = _STAMP.search(line, 0, _WITHIN)
    if match is None:
        return None
    year = time.localtime(modified).tm_year
    fields = [int(match[name]) for name in ("month", "day", "hour", "minute", "second")]
    try:
        wall = time.mktime((year, *fields, 0, 0, -1))  # type: ignore[arg-type]
        if wall > modified + 2 * _DAY:  # the last days of December, read in January
            wall = time.mktime((year - 1, *fields, 0, 0, -1))  # type: ignore[arg-type]
    except (OverflowError, ValueError):
        return None
    return wall
