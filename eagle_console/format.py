"""Numbers as the screen and the command line show them: pure, and an unknown one is a dash, never 0.

Memory is in GiB as vendors and NVML count it, disk in decimal units as file systems and vendors of disks count it; each
text names its unit.
"""

from __future__ import annotations

import datetime

UNKNOWN = "–"

_GIB = 1 << 30
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def gib(size: int | float | None) -> str:
    """Memory of ``size`` bytes: ``72.1 GiB``."""
    return UNKNOWN if size is None else f"{gib_number(size)} GiB"


def gib_number(size: int | float | None) -> str:
    """Memory of ``size`` bytes in GiB without the unit, for columns that carry it once."""
    return UNKNOWN if size is None else f"{size / _GIB:.1f}"


def gib_of(used: int | float | None, total: int | float | None) -> str:
    """Memory used of a total: ``72.1/95.6 GiB``."""
    if used is None and total is None:
        return UNKNOWN
    return f"{gib_number(used)}/{gib_number(total)} GiB"


def gb(size: int | float | None) -> str:
    """Disk space of ``size`` bytes in the largest unit that fits: ``311 GB``, ``1.2 TB``, ``213 MB``, ``0 B``."""
    if size is None:
        return UNKNOWN
    value, unit = float(size), _DECIMAL_UNITS[0]
    for unit in _DECIMAL_UNITS:
        if abs(value) < 999.5 or unit == _DECIMAL_UNITS[-1]:
            break
        value /= 1000
    decimals = 1 if unit != "B" and abs(value) < 9.95 else 0
    return f"{value:.{decimals}f} {unit}"


def percent(value: float | None, decimals: int = 0) -> str:
    """``98%``. A value just below 100 never rounds up to it: 100 % means finished."""
    if value is None:
        return UNKNOWN
    step: float = 10.0**-decimals
    if value < 100:
        value = min(value, 100 - step)
    return f"{value:.{decimals}f}%"


def duration(seconds: float | None) -> str:
    """A length of time: ``3s``, ``8:12`` (minutes), ``2:08:12`` (hours), ``3d 02:08`` (days, hours, minutes)."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    minutes, rest = divmod(whole, _MINUTE)
    if whole < _HOUR:
        return f"{minutes}:{rest:02d}"
    hours, minutes = divmod(minutes, 60)
    if whole < _DAY:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}:{minutes:02d}"


def duration_in_words(seconds: float | None) -> str:
    """A length of time for a sentence: ``41 s``, ``18 min``, ``2 h 8 min``, ``3 d 2 h``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def age(seconds: float | None) -> str:
    """How old a value is, in one short word: ``0.4s`` below ten seconds, then ``41s``, ``18min``, ``2h``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    number, unit = duration_in_words(max(10.0, seconds)).split(" ")[:2]
    return number + unit


def count(value: float | None) -> str:
    """A whole number with thousands separated: ``10,000``; fractions keep one digit."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def done_of(done: float | None, total: float | None, unit: str = "") -> str:
    """Counted progress: ``39/64 shards``; bytes as disk space: ``329 GB/540 GB``; empty if nothing is counted."""
    if done is None and total is None:
        return ""
    if unit == "bytes":
        return gb(done) if total is None else f"{gb(done)}/{gb(total)}"
    counted = count(done) if total is None else f"{count(done)}/{count(total)}"
    return f"{counted} {unit}".rstrip()


def clock(wall: float | None, seconds: bool = False) -> str:
    """Wall seconds as the local time of day: ``14:03``."""
    if wall is None:
        return UNKNOWN
    return datetime.datetime.fromtimestamp(wall).strftime("%H:%M:%S" if seconds else "%H:%M")


def moment(wall: float | None, now: float) -> str:
    """Wall seconds as a person needs them: ``14:03`` on the local day of ``now``, else the day: ``Nov 28``."""
    if wall is None:
        return UNKNOWN
    then, today = datetime.datetime.fromtimestamp(wall), datetime.datetime.fromtimestamp(now)
    return clock(wall) if then.date() == today.date() else then.strftime("%b %d")


def stamp(wall: float | None) -> str:
    """Wall seconds as local date and time, for lists that reach back over days: ``2026-11-28 14:03``."""
    return UNKNOWN if wall is None else datetime.datetime.fromtimestamp(wall).strftime("%Y-%m-%d %H:%M")


def plural(number: int, noun: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``; ``many`` is the plural where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
