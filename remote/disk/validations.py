"""What validation said about the checkpoints of a run, as far as it is written anywhere.

speculators writes ``val_metrics.json`` only into checkpoints that set a record at their time: absent does not mean bad.
Our trainer's ``metrics.jsonl`` has a ``val`` record for every epoch that was validated. The predicted acceptance length
is 1 for the verifier's own token and the share of drafts that are right up to each position.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan.training_commands import RECORDS
from remote.disk.completeness import open_regular, read_json

READ_LIMIT = 256 * 2**20
"""Bytes of records that are looked through; the last ones count."""

_MARK = b'"kind":"val"'


@dataclass(frozen=True)
class Validation:
    """Loss and predicted acceptance length; None for what was not recorded."""

    loss: Optional[float] = None
    predicted: Optional[float] = None


class Validations:
    """Reads the records of runs and keeps what it has read; the file only ever grows."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int], int, dict[int, Validation]]] = {}

    def of_run(self, folder: str) -> dict[int, Validation]:
        """By the number of the epoch, counted from 0; of an epoch that was repeated, the last one."""
        path = os.path.join(folder, RECORDS)
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                before, offset, found = self._known.get(path, (identity, 0, {}))
                if before != identity or offset > status.st_size:
                    offset, found = 0, {}
                file.seek(max(offset, status.st_size - READ_LIMIT))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    offset = file.tell()
                    if _MARK in line[:200]:
                        found.update(_record(line))
        except OSError:
            return {}
        self._known[path] = (identity, offset, found)
        return found


def of_checkpoint(folder: str) -> Optional[Validation]:
    """What ``val_metrics.json`` says; None where there is none."""
    try:
        values = read_json(os.path.join(folder, "val_metrics.json"))
    except (OSError, ValueError):
        return None
    return validation(values) if isinstance(values, Mapping) else None


def validation(values: Mapping[str, Any]) -> Validation:
    """The validation in the trainer's values: ``loss_epoch``, ``full_acc_0_epoch`` and so on."""
    full: list[float] = []
    while (value := number(values.get(f"full_acc_{len(full)}_epoch"))) is not None:
        full.append(value)
    return Validation(number(values.get("loss_epoch")), 1.0 + sum(full) if full else None)


def number(value: Any) -> Optional[float]:
    """The value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _record(line: bytes) -> dict[int, Validation]:
    try:
        record = json.loads(line)
        epoch, values = record["epoch"], record["val"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not isinstance(values, Mapping):
        return {}
    return {epoch: validation(values)}
