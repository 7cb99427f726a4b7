"""One run of the trainer's process: its records become the stage's events, a stop reaches it the way that saves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from pipeline.plan.events import EpochSaved
from pipeline.processes import Tree
from pipeline.stages.runtime import StageRun
from pipeline.training import records
from pipeline.training.checkpoints import INTERRUPTED

POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0
RATE_SECONDS = 30.0
"""The rate is that of the steps of the last so many seconds, without pauses for saving and validation."""


@dataclass
class Outcome:
    """How the process ended.

    :param code: its exit code; 0 also when it was stopped and has saved.
    :param stepped: it has done at least one step.
    :param compiling: what failed was torch's compiler.
    :param error: its own words for the failure; empty where it left none.
    :param saved: checkpoints that it wrote: epoch (or ``interrupted``) and bytes.
    """

    code: int = 0
    stepped: bool = False
    compiling: bool = False
    error: str = ""
    saved: list[tuple[Any, int]] = field(default_factory=list)


def train(stage: StageRun, argv: Sequence[str], env: Mapping[str, str], record_file: Path) -> Outcome:
    """Runs the trainer to its end; a stop of the stage is passed on once and then waited for.

    :raises OSError: when the process cannot be started.
    """
    outcome = Outcome()
    follower = Follower(stage, outcome)
    reader = records.Reader(record_file)
    tree = Tree(argv, env)
    try:
        with stage.on_stop(lambda: _interrupt(tree)):
            while (code := tree.code()) is None:
                _follow(reader, follower)
                time.sleep(POLL_SECONDS)
    finally:
        tree.end(GRACE_SECONDS)
    _follow(reader, follower)
    follower.close()
    outcome.code = code
    return outcome


class Follower:
    """Turns the trainer's records into events of the stage, and remembers what decides about the outcome."""

    def __init__(self, stage: StageRun, outcome: Outcome) -> None:
        self._stage, self._outcome = stage, outcome
        self._total: Optional[int] = None
        self._seen: deque[tuple[float, int]] = deque()
        self._saved_epoch: Optional[EpochSaved] = None  # told when its validation is over

    def read(self, record: Mapping[str, Any]) -> None:
        """Takes the next record."""
        reader = {
            records.PHASE: self._phase,
            records.EPOCH: self._epoch,
            records.STEP: self._step,
            records.TRAIN: self._train,
            records.VAL: self._val,
            records.SAVED: self._saved,
            records.TEXT: self._text,
            records.FAILED: self._failed,
        }.get(record["kind"])
        if reader is not None:
            reader(record)

    def close(self) -> None:
        """No record follows."""
        self._tell_saved()

    def _phase(self, record: Mapping[str, Any]) -> None:
        self._seen.clear()
        self._stage.phase(record["name"], record.get("detail") or "")

    def _epoch(self, record: Mapping[str, Any]) -> None:
        self._tell_saved()
        self._total = record["total"]
        place = {"epoch": record["epoch"] + 1, "epochs": record["epochs"], "epoch_steps": record["steps"]}
        self._stage.metrics(record["global_step"], {name: float(value) for name, value in place.items()})

    def _step(self, record: Mapping[str, Any]) -> None:
        self._outcome.stepped = True
        step = int(record["global_step"])
        self._seen.append((float(record["t"]), step))
        while self._seen[-1][0] - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        (begin, first), (end, last) = self._seen[0], self._seen[-1]
        rate = (last - first) / (end - begin) if end > begin else None
        self._stage.count(step, self._total, "steps", rate)
        if record.get("waiting") is not None:
            self._stage.metrics(step, {"waiting_for_data": record["waiting"], "steps_per_second": rate})

    def _train(self, record: Mapping[str, Any]) -> None:
        told = (record.get("train") or {}).items()
        values = {name: value for name, value in told if value is None or _number(value)}  # None: it was not finite
        rates = record.get("lr")
        values["learning_rate"] = max(rates.values()) if isinstance(rates, Mapping) else rates
        values["tokens_per_second"] = (record.get("profile") or {}).get("tokens_per_s")
        self._stage.metrics(record.get("step"), values)

    def _val(self, record: Mapping[str, Any]) -> None:
        found = records.validation(record)
        if found is None:
            return
        values = {f"validation_full_acc_{position}": value for position, value in enumerate(found.full_acc)}
        values.update({f"validation_cond_acc_{position}": value for position, value in enumerate(found.cond_acc)})
        predicted = {"validation_loss": found.loss, "predicted_acceptance": found.predicted}
        self._stage.metrics(record.get("step"), {**values, **predicted})
        accuracies = "/".join(f"{value:.3f}" for value in found.full_acc)
        self._stage.message(
            f"Epoch {found.epoch + 1}: validation predicts acceptance length {found.predicted:.2f} ({accuracies})."
        )
        if self._saved_epoch is not None and self._saved_epoch.epoch == found.epoch:
            self._saved_epoch = replace(
                self._saved_epoch, predicted_acceptance=found.predicted, validation_loss=found.loss
            )
            self._tell_saved()

    def _saved(self, record: Mapping[str, Any]) -> None:
        epoch, size = record["epoch"], int(record["bytes"])
        self._outcome.saved.append((epoch, size))
        what = "The interrupted epoch" if epoch == INTERRUPTED else f"Epoch {epoch + 1}"
        if record.get("local_step"):
            what += f", step {record['local_step']},"
        self._stage.metrics(None, {"checkpoint_bytes": float(size), "checkpoint_seconds": record.get("seconds")})
        self._stage.message(f"{what} is saved: {size / 1e6:,.0f} MB in {record.get('seconds')} s.")
        if isinstance(epoch, int) and not record.get("local_step"):
            self._tell_saved()
            self._saved_epoch = EpochSaved(str(record["path"]), epoch, record.get("global_step"), size)

    def _tell_saved(self) -> None:
        """An epoch is saved before it is validated; it is told with both."""
        told, self._saved_epoch = self._saved_epoch, None
        if told is not None:
            self._stage.epoch_saved(told)

    def _text(self, record: Mapping[str, Any]) -> None:
        """The trainer has written it into the log already; only what people must know is repeated as an event."""
        if record.get("level") in ("warning", "error", "critical"):
            self._stage.message(str(record.get("text")), "warning")

    def _failed(self, record: Mapping[str, Any]) -> None:
        self._outcome.error = str(record.get("error"))
        self._outcome.compiling = bool(record.get("compiling"))


def _follow(reader: records.Reader, follower: Follower) -> None:
    for record in reader.read():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            follower.read(record)


def _interrupt(tree: Tree) -> None:
    """SIGTERM to the trainers themselves: torchrun, which gives them 30 s for saving, is passed over."""
    ranks = _children(tree.pid) if b"torch.distributed.run" in _command_line(tree.pid) else []
    for pid in ranks or [tree.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
