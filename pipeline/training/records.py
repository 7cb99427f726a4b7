"""What the trainer's process tells: JSON lines in ``metrics.jsonl`` of the save path, kept over resumes.

The wrapper around the trainer appends, the stage reads while it grows. Each line has ``t`` (seconds since the epoch)
and ``kind``: ``phase``, ``epoch``, ``step``, ``train``, ``val``, ``saved``, ``config``, ``text`` or ``failed``. The
trainer holds a lock on the file for as long as it lives, so that no second one writes the same save path.
"""

from __future__ import annotations

import fcntl
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Optional

from pipeline.plan.training_commands import RECORDS

FILE = RECORDS

PHASE, EPOCH, STEP, TRAIN, VAL, SAVED, CONFIG, TEXT, FAILED = (
    "phase", "epoch", "step", "train", "val", "saved", "config", "text", "failed",
)  # fmt: skip


class Writer:
    """Appends records. Numbers that JSON cannot hold become null; a line is one write, so that none is ever mixed.

    :raises BlockingIOError: when another trainer holds the file.
    """

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = open(path, "ab", buffering=0)  # noqa: SIM115 - lives as long as the process
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one record."""
        data = {"t": round(time.time(), 3), "kind": kind, **plain(fields)}
        self._file.write(json.dumps(data, separators=(",", ":"), allow_nan=False, default=str).encode() + b"\n")


def in_use(path: Path) -> bool:
    """Whether a trainer that is alive writes the records."""
    try:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class Reader:
    """Reads the records that were appended since it was made, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """The records that came since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return list(parse(lines))


@dataclass(frozen=True)
class Validation:
    """What validation said after an epoch, counted from 0; the accuracies are by position in the draft."""

    epoch: int
    loss: Optional[float]
    full_acc: tuple[float, ...]
    cond_acc: tuple[float, ...]

    @property
    def predicted(self) -> float:
        """The acceptance length to expect: 1 for the verifier's own token, and the share of drafts right up to each
        position."""
        return 1.0 + sum(self.full_acc)


def parse(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    """The records among the lines; a line that is cut is none."""
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            yield record


def validations(path: Path) -> dict[int, Validation]:
    """The validation of each epoch by its number; of an epoch that was repeated, the last one.

    :raises OSError: when the file is there and cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    found = (validation(record) for record in parse(lines) if record["kind"] == VAL)
    return {item.epoch: item for item in found if item is not None}


def validation(record: Mapping[str, Any]) -> Optional[Validation]:
    """The validation in a record of that kind; None when it holds no accuracies or was not finite."""
    values = record.get("val") or {}
    full, conditional = _by_position(values, "full_acc"), _by_position(values, "cond_acc")
    if not full or not isinstance(record.get("epoch"), int):
        return None
    return Validation(record["epoch"], values.get("loss_epoch"), full, conditional)


def best(found: Mapping[int, Validation], among: Iterable[int]) -> Optional[int]:
    """The epoch with the highest predicted acceptance length among those; of equal ones the later; None of none."""
    candidates = [number for number in among if number in found]
    return max(candidates, key=lambda number: (found[number].predicted, number), default=None)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _by_position(values: Mapping[str, Any], name: str) -> tuple[float, ...]:
    found: list[float] = []
    while isinstance(values.get(f"{name}_{len(found)}_epoch"), (int, float)):
        found.append(float(values[f"{name}_{len(found)}_epoch"]))
    return tuple(found)
