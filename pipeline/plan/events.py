"""What a stage says while it runs: typed events as JSON lines in the job's ``progress.jsonl``.

A line is ``{"t": seconds since the epoch, "event": kind, ...fields}``. The stage appends, the job's runner reads; a
reader ignores kinds and fields that it does not know, and lines that are cut.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Optional, Union

FILE = "progress.jsonl"

INFO, WARNING, ERROR = "info", "warning", "error"

SERVER_DIED = "server"
"""Class of a failure of which a server's log, copied into the stage's, knows more."""


@dataclass(frozen=True)
class Phase:
    """A part of the work begins; the one before it has ended."""

    name: str
    detail: str = ""


@dataclass(frozen=True)
class Count:
    """How far the running phase is. ``rate`` is in units a second; None where it is not known."""

    done: float
    total: Optional[float] = None
    unit: str = ""
    rate: Optional[float] = None


@dataclass(frozen=True)
class Metrics:
    """Figures of one step, by name with unit; None for a value that is no finite number."""

    step: Optional[int]
    values: dict[str, Optional[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """A sentence for people. ``level`` is ``info``, ``warning`` or ``error``."""

    level: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """One fact that was checked on the finished work: what, how much, and whether it is as it must be."""

    name: str
    value: Union[str, float, int, bool, None]
    unit: str = ""
    ok: bool = True


@dataclass(frozen=True)
class EpochSaved:
    """A checkpoint of a whole epoch is on the disk, and its validation is over: what retention decides by.

    :param path: of the checkpoint's folder. :param epoch: its number, counted from 0 as in the folder's name.
    :param step: of the whole training. :param bytes: of all its files.
    :param predicted_acceptance: 1 + the share of validation drafts that are right up to each position; None where there
        was no validation.
    :param validation_loss: None where there was no validation, or it was no finite number.
    """

    path: str
    epoch: int
    step: Optional[int] = None
    bytes: int = 0
    predicted_acceptance: Optional[float] = None
    validation_loss: Optional[float] = None


@dataclass(frozen=True)
class Failed:
    """Why the stage cannot go on: the last event. ``where`` names the file and field, empty where there is none."""

    cause: str
    remedy: str = ""
    where: str = ""
    klass: str = "stage"


Event = Union[Phase, Count, Metrics, Message, Evidence, EpochSaved, Failed]

_KINDS: dict[str, Any] = {
    "phase": Phase,
    "count": Count,
    "metrics": Metrics,
    "message": Message,
    "evidence": Evidence,
    "epoch_saved": EpochSaved,
    "failed": Failed,
}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def encode(event: Event, wall: float) -> bytes:
    """The event as one line. Numbers that JSON cannot hold become null."""
    data = {"t": round(wall, 3), "event": _NAMES[type(event)], **_plain(dataclasses.asdict(event))}
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: str) -> Optional[tuple[float, Event]]:
    """Time and event of a line; None for a line that is cut, of an unknown kind, or not an event at all."""
    try:
        data = json.loads(line, parse_constant=lambda word: None)
        cls = _KINDS[data["event"]]
        wall = float(data["t"])
        known = {item.name: data[item.name] for item in dataclasses.fields(cls) if item.name in data}
        event = cls(**known)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (wall, event) if math.isfinite(wall) and _well_typed(event) else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _well_typed(event: Event) -> bool:
    """Whether the fields hold what their types say: a job directory can be written by anybody who shares it."""
    if isinstance(event, Phase):
        return _texts(event.name, event.detail)
    if isinstance(event, Count):
        numbers = (event.done, event.total, event.rate)
        return _number(event.done) and all(item is None or _number(item) for item in numbers) and _texts(event.unit)
    if isinstance(event, Metrics):
        return (
            (event.step is None or _whole(event.step))
            and isinstance(event.values, dict)
            and all(item is None or _number(item) for item in event.values.values())
        )
    if isinstance(event, Message):
        return _texts(event.level, event.text)
    if isinstance(event, Evidence):
        value = event.value
        return (
            _texts(event.name, event.unit)
            and isinstance(event.ok, bool)
            and (value is None or isinstance(value, (str, bool)) or _number(value))
        )
    if isinstance(event, EpochSaved):
        figures = (event.predicted_acceptance, event.validation_loss)
        return (
            _texts(event.path)
            and _whole(event.epoch)
            and _whole(event.bytes)
            and (event.step is None or _whole(event.step))
            and all(item is None or _number(item) for item in figures)
        )
    return _texts(event.cause, event.remedy, event.where, event.klass)


def _texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
