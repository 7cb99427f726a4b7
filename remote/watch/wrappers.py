"""What other programs put around a log line: time stamps, containers, pods, launchers. A pure function of the line.

Known are ``ts`` and ``ts -s``, ISO and syslog times, journald, Docker's JSON files, the CRI files of Kubernetes,
``docker compose``, ``kubectl logs --prefix --timestamps``, ``srun --label``, ``torchrun`` and ``mpirun``. They may be
nested. A word that could as well be the line's own is taken off only before a header of vLLM.
"""

from __future__ import annotations

import calendar
import json
import re
from dataclasses import dataclass
from typing import Optional

DATE, DAY_OF_YEAR, TIME_OF_DAY, SECONDS = "date", "day of year", "time of day", "seconds"
"""What a stamp counts from: the epoch, the year's beginning, midnight (or the start), an unknown moment."""

_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_YEAR = 2001  # of stamps without one: any without a leap day
_NESTED = 5

_OUR_HEADER = r"(?=\(\w[\w:.-]* [^)]{0,60}pid=\d+|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[ :])"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?P<fraction>[.,]\d{1,9})?"

_STAMPED = (
    (
        DATE,
        re.compile(
            rf"\[?(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_CLOCK}(?P<zone> ?Z|[+-]\d\d:?\d\d)?\]?:?"
            r"(?: (?:stdout|stderr) [FP])?(?:[ \t]|$)"
        ),
    ),
    (DAY_OF_YEAR, re.compile(rf"(?P<month_name>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) {_CLOCK} ")),
    (TIME_OF_DAY, re.compile(rf"\[?{_CLOCK}\]? ")),
    (SECONDS, re.compile(r"\[? {0,8}(?P<seconds>\d{1,10}\.\d{3,9})\]? (?:\\r )?")),
)

_LABELS = (
    re.compile(r"[\w.-]{1,100} *\| ?(?![\d.]+/)"),  # docker compose; a bar has its numbers there
    re.compile(r"\[pod/[^\]\s]{1,300}\] "),
    re.compile(r"[a-zA-Z][\w.-]{0,63} [\w.@-]{1,64}\[\d+\]: "),  # journald: host and program
    re.compile(r"\[(?:rank|default)?\d{1,5}\]: ?|\[\d{1,5},\d{1,5}\]<std(?:out|err)>: ?"),
    re.compile(r"\((?:pid=\d+(?:, ip=[\w.:]+)?)\) "),
    # srun, pdsh: before a bar too
    re.compile(rf" {{0,6}}(?:\d{{1,5}}: |[\w.-]{{1,100}}: (?:{_OUR_HEADER}|(?=[A-Z][^|:]{{1,120}}: +\d{{1,3}}%[ |])))"),
    re.compile(rf"[\w.-]{{1,100}} [\w.-]{{1,100}} {_OUR_HEADER}"),  # stern: pod and container
)


@dataclass(frozen=True)
class Stamp:
    """When a line was written: ``value`` seconds on the scale ``kind``."""

    kind: str
    value: float


@dataclass(frozen=True)
class Unwrapped:
    """A line without what was put around it, and the outermost stamp where there was one."""

    text: str
    stamp: Optional[Stamp] = None


def unwrap(line: str) -> Unwrapped:
    """The line as its own program wrote it, as far as that can be told."""
    stamp: Optional[Stamp] = None
    text = line
    if text.startswith('{"') and '"log"' in text:
        record = _docker_record(text)
        if record is not None:
            text, stamp = record.text, record.stamp
    for _ in range(_NESTED):
        found = _stamped(text)
        if found is not None:
            stamp = stamp or found[0]
            text = text[found[1] :]
            continue
        label = next((match for match in (pattern.match(text) for pattern in _LABELS) if match), None)
        if label is None:
            break
        text = text[label.end() :]
    return Unwrapped(text, stamp)


def header_stamp(month_day: str, clock: str) -> Optional[Stamp]:
    """The stamp of vLLM's own header: ``11-30`` and ``19:20:05``."""
    month, _, day = month_day.partition("-")
    hour, minute, second = clock[:8].split(":")
    value = _seconds(_YEAR, int(month), int(day), int(hour), int(minute), float(second))
    return None if value is None else Stamp(DAY_OF_YEAR, value)


def _stamped(text: str) -> Optional[tuple[Stamp, int]]:
    if not text or not (text[0] in "[ " or text[0].isalnum()):
        return None
    for kind, pattern in _STAMPED:
        match = pattern.match(text)
        if match:
            value = _value(kind, match.groupdict())
            return None if value is None else (Stamp(kind, value), match.end())
    return None


def _value(kind: str, parts: dict[str, Optional[str]]) -> Optional[float]:
    if kind == SECONDS:
        return float(parts["seconds"] or 0)
    second = float(f"{parts['second']}.{(parts['fraction'] or '.0')[1:]}")
    hour, minute = int(parts["hour"] or 0), int(parts["minute"] or 0)
    if kind == TIME_OF_DAY:
        return 3600.0 * hour + 60.0 * minute + second
    if kind == DAY_OF_YEAR:
        month = _MONTHS.get(parts["month_name"] or "", 0)
        return _seconds(_YEAR, month, int(parts["day"] or 0), hour, minute, second)
    value = _seconds(int(parts["year"] or 0), int(parts["month"] or 0), int(parts["day"] or 0), hour, minute, second)
    zone = (parts["zone"] or "").strip().replace(":", "")
    if value is None or zone in ("", "Z"):
        return value
    offset = 3600.0 * int(zone[1:3]) + 60.0 * int(zone[3:5])
    return value - offset if zone[0] == "+" else value + offset


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: float) -> Optional[float]:
    if not (1970 <= year <= 2999 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    return calendar.timegm((year, month, day, hour, minute, 0)) + second


def _docker_record(text: str) -> Optional[Unwrapped]:
    """A line of Docker's ``json-file`` driver: keys log, stream, time."""
    try:
        record = json.loads(text)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("log"), str):
        return None
    found = _stamped(f"{record.get('time', '')} ")
    return Unwrapped(record["log"].rstrip("\r\n"), found[0] if found else None)
