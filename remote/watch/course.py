"""The course of a training run from its records, whichever of two sources they come from. Pure.

``metrics.jsonl`` is what our trainer writes into its save path: a JSON object a line, with the time ``t`` and a
``kind``. The console output of speculators itself is read through ``watch.training``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Optional

from remote.protocol import series as names
from remote.protocol.series import MAX_POINTS, SavedCheckpoint, Series
from remote.watch import training
from remote.watch.thinning import Thinned

MAX_POSITIONS = 8
"""Positions of the draft whose accuracy is kept; speculators trains with 3 to 5."""

MAX_CHECKPOINTS = 200
MAX_EPOCHS = 1000
MAX_TEXT = 4096
RATE_SECONDS = 2.0
"""The shortest time that a rate is measured over."""


class Course:
    """What the records have told so far."""

    def __init__(self) -> None:
        self._series: dict[str, Thinned] = {}
        self._epochs: list[int] = []
        self._saved: dict[str, SavedCheckpoint] = {}
        self.broken_since: Optional[int] = None

    @property
    def series(self) -> tuple[Series, ...]:
        """The series that have points, each thinned."""
        found = []
        for name, thinned in self._series.items():
            points = thinned.points()
            values = tuple(None if value is None else float(f"{value:.6g}") for _, value in points)
            found.append(Series(name, tuple(step for step, _ in points), values))
        return tuple(found)

    @property
    def epochs(self) -> tuple[int, ...]:
        return tuple(self._epochs)

    @property
    def checkpoints(self) -> tuple[SavedCheckpoint, ...]:
        """In the order of their steps."""
        return tuple(sorted(self._saved.values(), key=lambda saved: (saved.step or 0, saved.path)))

    def add(self, name: str, step: int, value: Optional[float]) -> None:
        """Adds a point to a series."""
        self._series.setdefault(name, Thinned(MAX_POINTS)).add(step, value)

    def add_loss(self, step: int, value: Optional[float]) -> None:
        """Adds the loss of a step; one that is no number is remembered until a number follows."""
        self.add(names.LOSS, step, value)
        if value is not None:
            self.broken_since = None
        elif self.broken_since is None:
            self.broken_since = step

    def begin_epoch(self, step: int) -> None:
        """An epoch begins after ``step`` steps; epochs that a resumed run repeats are forgotten."""
        while self._epochs and self._epochs[-1] >= step:
            self._epochs.pop()
        if len(self._epochs) < MAX_EPOCHS:
            self._epochs.append(step)

    def save(self, saved: SavedCheckpoint) -> None:
        """A checkpoint was written; the same folder counts once."""
        self._saved.pop(saved.path, None)
        self._saved[saved.path] = saved
        if len(self._saved) > MAX_CHECKPOINTS:
            del self._saved[next(iter(self._saved))]


class RecordReader:
    """Reads the lines of ``metrics.jsonl`` into a course. What is not such a record is passed over."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._since: Optional[tuple[float, int]] = None
        self._readers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "train": self._train,
            "step": self._step,
            "val": self._validation,
            "epoch": self._epoch,
            "saved": self._saved,
            "phase": self._phase,
        }

    def read_line(self, line: str) -> None:
        """Takes the next line."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            reader = self._readers.get(record["kind"])
            if reader is not None:
                reader(record)

    def _train(self, record: Mapping[str, Any]) -> None:
        logged, values = _whole(record.get("step")), _mapping(record.get("train"))
        if logged is None:
            return
        step = logged + 1  # it is written before it is counted
        add = self._course.add
        if "loss" in values:
            self._course.add_loss(step, _number(values["loss"]))
        for position, value in enumerate(_by_position(values, "cond_acc_", "")):
            add(f"{names.ACCURACY}{position}", step, value)
        full = _by_position(values, "full_acc_", "")
        if full:
            add(names.PREDICTED, step, 1.0 + sum(full))
        rates = record.get("lr")
        found = [_number(value) for value in rates.values()] if isinstance(rates, Mapping) else [_number(rates)]
        known = [value for value in found if value is not None]
        if known:
            add(names.LEARNING_RATE, step, max(known))
        profile = _mapping(record.get("profile"))
        for name, key in ((names.TOKEN_RATE, "tokens_per_s"), (names.DATA_WAIT, "fetch_frac")):
            figure = _number(profile.get(key))
            if figure is not None:
                add(name, step, figure)
        self._arrived(record, step)

    def _step(self, record: Mapping[str, Any]) -> None:
        step = _whole(record.get("global_step"))
        if step is not None:
            waiting = _number(record.get("waiting"))
            if waiting is not None:
                self._course.add(names.DATA_WAIT, step, waiting)
            self._arrived(record, step)

    def _arrived(self, record: Mapping[str, Any], step: int) -> None:
        """The step rate, over stretches in which nothing but steps happened."""
        at = _number(record.get("t"))
        if at is None:
            return
        if self._since is None or step < self._since[1] or at < self._since[0]:
            self._since = (at, step)
        elif at - self._since[0] >= RATE_SECONDS and step > self._since[1]:
            self._course.add(names.STEP_RATE, step, (step - self._since[1]) / (at - self._since[0]))
            self._since = (at, step)

    def _validation(self, record: Mapping[str, Any]) -> None:
        step, values = _whole(record.get("step")), _mapping(record.get("val"))
        if step is None:
            return
        if "loss_epoch" in values:
            self._course.add(names.VALIDATION_LOSS, step, _number(values["loss_epoch"]))
        full = _by_position(values, "full_acc_", "_epoch")
        if full:
            self._course.add(names.VALIDATION_PREDICTED, step, 1.0 + sum(full))

    def _epoch(self, record: Mapping[str, Any]) -> None:
        self._since = None
        step, local = _whole(record.get("global_step")), _whole(record.get("local_step"))
        if step is not None:
            self._course.begin_epoch(max(0, step - (local or 0)))

    def _saved(self, record: Mapping[str, Any]) -> None:
        self._since = None
        path = record.get("path")
        if isinstance(path, str) and path:
            self._course.save(
                SavedCheckpoint(
                    path[:MAX_TEXT], _whole(record.get("epoch")), _whole(record.get("global_step")),
                    _whole(record.get("bytes")), _number(record.get("t")),
                )
            )  # fmt: skip

    def _phase(self, record: Mapping[str, Any]) -> None:
        self._since = None


class LogReader:
    """Reads the console output of a training run into a course."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._state = training.initial()

    def read_line(self, line: str) -> None:
        """Takes the next line."""
        before = self._state.shown
        self._state = training.read_line(self._state, line, None)
        shown = self._state.shown
        if shown is before:
            return
        step = shown.step
        if shown.epoch is not None and shown.epoch != before.epoch:
            self._course.begin_epoch(step or 0)
        if step is None:
            return
        add = self._course.add
        if shown.losses is not before.losses:  # a step was read, not some other record
            self._course.add_loss(step, shown.loss)
            for position, value in enumerate(shown.accuracy[:MAX_POSITIONS]):
                add(f"{names.ACCURACY}{position}", step, value)
            figures = (
                (names.PREDICTED, shown.predicted_length),
                (names.LEARNING_RATE, shown.learning_rate),
                (names.TOKEN_RATE, shown.tokens_per_second),
                (names.DATA_WAIT, shown.data_wait),
            )
            for name, figure in figures:
                if figure is not None:
                    add(name, step, figure)
        if shown.validation_accuracy is not before.validation_accuracy and shown.validation_loss is not None:
            add(names.VALIDATION_LOSS, step, shown.validation_loss)
        if shown.checkpoint is not None and shown.checkpoint is not before.checkpoint:
            self._course.save(SavedCheckpoint(shown.checkpoint[:MAX_TEXT], step=shown.checkpoint_step))

    @property
    def folder(self) -> str:
        """Where the run saves, as its settings say; empty where they do not."""
        return (self._state.shown.save_path or "")[:MAX_TEXT]


def _by_position(values: Mapping[str, Any], name: str, end: str) -> tuple[float, ...]:
    found: list[float] = []
    while len(found) < MAX_POSITIONS:
        value = _number(values.get(f"{name}{len(found)}{end}"))
        if value is None:
            break
        found.append(value)
    return tuple(found)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _number(value: Any) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float(value) if abs(value) < 1e300 else math.inf
    return number if math.isfinite(number) else None
