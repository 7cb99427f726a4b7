"""Earlier starts of servers, as the estimate of the next one needs them: the record, its file's lines, its likeness.

The file is ``starts.jsonl``: one JSON object a line, each with the version of its shape, the newest last. Whoever
shares the file system can put anything into it, so a line that is not such a record is passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

SCHEMA = 1

MAX_STARTS = 64
"""Starts that are kept and read: with the half-life of the estimate, older ones say nothing any more."""

MAX_MARKS = 512
MAX_LINE = 32 * 1024
MAX_TEXT = 1024
MAX_SECONDS = 30 * 86400.0

SPANS = ("start", "weights", "load end", "compile", "capture", "server")
"""The parts of a start that are predicted one by one; ``spans`` says which phases each one covers."""


@dataclass(frozen=True)
class StartKey:
    """What a start's durations depend on. An empty text or 0 is unknown, and as unlike as any other value.

    :param model: path of the model; ``draft`` of the draft model.
    :param filesystem: where the weights lie: mount point and type.
    :param cache: ``warm`` or ``cold``: whether compiled code of an earlier start was there.
    :param machine: the host's id: several hosts may share one workspace.
    """

    model: str = ""
    filesystem: str = ""
    draft: str = ""
    tensor_parallel: int = 0
    version: str = ""
    cache: str = ""
    machine: str = ""


@dataclass(frozen=True)
class PastStart:
    """A start that reached its end.

    :param seconds: of each span by name; one that the start did not have is missing.
    :param size: bytes of the checkpoint, None where unknown.
    :param marks: for each file of the checkpoint the share of the weights' time after which it was read.
    :param warm: the weights came from the page cache; None where nothing was counted.
    :param silence: the longest time, in seconds, in which no counter and no line moved.
    :param wall: when it was ready, seconds since the epoch.
    """

    key: StartKey
    seconds: Mapping[str, float]
    size: Optional[float] = None
    marks: tuple[float, ...] = ()
    warm: Optional[bool] = None
    silence: float = 0.0
    wall: float = 0.0
    schema: int = field(default=SCHEMA)


# How much a start of another value counts, against one of the same. A draft or another number of GPUs changes what is
# compiled and captured; another model of the same size class mostly changes the bytes, which are scaled for.
_UNLIKE = {
    "model": 0.5, "filesystem": 0.5, "draft": 0.1, "tensor_parallel": 0.1, "version": 0.3, "cache": 0.3, "machine": 0.3,
}  # fmt: skip


def likeness(one: StartKey, other: StartKey) -> float:
    """How much a start with one key tells about one with the other: 1 for the same key, towards 0."""
    share = 1.0
    for name, factor in _UNLIKE.items():
        if getattr(one, name) != getattr(other, name):
            share *= factor
    return share


def to_line(start: PastStart) -> str:
    """The line of the file, with its end."""
    return json.dumps({**asdict(start), "seconds": dict(start.seconds)}, separators=(",", ":"), allow_nan=False) + "\n"


def read_lines(lines: Iterable[str]) -> tuple[PastStart, ...]:
    """The starts in a file's lines, oldest first, at most the newest ``MAX_STARTS``."""
    starts = [start for start in map(_read_line, lines) if start is not None]
    return tuple(starts[-MAX_STARTS:])


def _read_line(line: str) -> Optional[PastStart]:
    if len(line) > MAX_LINE:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("key"), dict):
        return None
    seconds = data.get("seconds")
    spans = _numbers(seconds) if isinstance(seconds, dict) else None
    if not spans:
        return None
    marks = data.get("marks")
    size, warm = _number(data.get("size"), math.inf), data.get("warm")
    return PastStart(
        key=_key(data["key"]),
        seconds=spans,
        size=size if size else None,
        marks=_shares(marks) if isinstance(marks, list) else (),
        warm=warm if isinstance(warm, bool) else None,
        silence=_number(data.get("silence"), MAX_SECONDS) or 0.0,
        wall=_number(data.get("wall"), math.inf) or 0.0,
    )


def _key(data: Mapping[str, Any]) -> StartKey:
    texts = {
        name: data[name][:MAX_TEXT]
        for name in ("model", "filesystem", "draft", "version", "cache", "machine")
        if isinstance(data.get(name), str)
    }
    parallel = data.get("tensor_parallel")
    known = isinstance(parallel, int) and not isinstance(parallel, bool) and 0 <= parallel < 1 << 20
    return StartKey(tensor_parallel=parallel if known and parallel is not None else 0, **texts)


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    read = {name: _number(data.get(name), MAX_SECONDS) for name in SPANS}
    return {name: value for name, value in read.items() if value is not None}


def _number(value: Any, most: float) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0.0 <= number <= most else None


def _shares(values: list[Any]) -> tuple[float, ...]:
    """Shares that only grow, from 0 to 1; empty when they are anything else."""
    shares = [_number(value, 1.0) for value in values[: MAX_MARKS + 1]]
    numbers = [share for share in shares if share is not None]
    if len(numbers) != len(values) or len(numbers) > MAX_MARKS or numbers != sorted(numbers):
        return ()
    return tuple(numbers)
