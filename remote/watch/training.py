"""How far a training run is, from its console output: a pure function of state, line and arrival time.

The wording is that of speculators 0.3 to 0.9 (``key=value`` records of its metric logger, its frame lines and the bar
that it prints at the end of an epoch). What the output does not say stays unknown. A rate comes only from steps that
were seen to arrive: the age of lines that were there before is not known, so those are read with ``at`` None.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Optional

from remote.protocol.training import Training
from remote.watch import rich_records, steps
from remote.watch.rich_records import Record
from remote.watch.steps import Steps

STARTING, TRAINING, VALIDATION, CHECKPOINT, DONE, INTERRUPTED = (
    "starting", "training", "validation", "checkpoint", "done", "interrupted",
)  # fmt: skip

KEPT = 60
"""Steps of which loss and accuracy are kept."""

_PAIR = re.compile(r"(?P<key>[A-Za-z][\w/.\[\]-]{0,80})=(?P<value>'[^']{0,4096}'|\[[^\]]{0,400}\]|[^,\s]+)")
_EPOCH = re.compile(r"(?P<kind>Training|Validation) epoch (?P<epoch>\d+)/(?P<epochs>\d+) (?P<what>started|completed)")
_SAVING = re.compile(r"Saving checkpoint to (?P<path>.+?)\s*$")
_SAVED = re.compile(r"(?:Checkpoint|Interrupt checkpoint) saved to (?P<path>.+?)\s*$")
_RESUMING = re.compile(
    r"Resuming (?:training on epoch (?P<epoch>\d+)|mid-epoch from epoch=(?P<middle>\d+).*?global_step=(?P<step>\d+))"
)
_INTERRUPT = re.compile(r"Received SIG\w+\W")
_BAR = re.compile(r"Epoch (?P<epoch>\d+)\s+100% \S+\s+(?P<done>\d+)/(?P<total>\d+)\s+\[")
_LAST_PAIR = re.compile(r"global_step=\d+$")
_FIRST_KEYS = ("speculator_type=", "speculator/")


@dataclass(frozen=True)
class TrainingState:
    """What the output has said so far.

    ``shown`` is the latest picture without what is derived, ``record`` the record that is being written,
    ``max_steps`` the limit that was set, ``epoch_length`` the batches of the last whole epoch, ``epochs_done`` and
    ``done_at`` how many epochs are complete and at which step; ``steps`` are those that were seen to arrive.
    """

    shown: Training = field(default_factory=Training)
    record: Optional[Record] = None
    max_steps: Optional[int] = None
    epoch_length: Optional[int] = None
    epochs_done: Optional[int] = None
    done_at: Optional[int] = None
    partial_epoch: bool = False
    steps: Steps = field(default_factory=Steps)

    @property
    def begun(self) -> bool:
        """Whether anything in the output was that of a training run."""
        return bool(self.shown.phase)


def initial() -> TrainingState:
    """The state before the first line."""
    return TrainingState()


def read_line(state: TrainingState, line: str, at: Optional[float]) -> TrainingState:
    """The state after one more line.

    :param at: when it arrived, in seconds of any clock that only goes forward; None when that is not known.
    """
    record = rich_records.head(line)
    if record is None and state.record is not None:
        extended = rich_records.extend(state.record, line)
        if extended is not None:
            return _maybe_complete(replace(state, record=extended), at)
    if state.record is not None:
        state = _read_record(state, state.record, at)
    if record is None:
        return _read_bar(replace(state, record=None), line)
    return _maybe_complete(replace(state, record=record), at)


def flush(state: TrainingState, at: Optional[float]) -> TrainingState:
    """The state when nothing will follow: the last record is as complete as it gets."""
    return _read_record(state, state.record, at) if state.record is not None else state


def progress(state: TrainingState, at: Optional[float] = None) -> Training:
    """The picture to show.

    :param at: now, of the clock of the lines; None where it is not known: then there is no time that is left.
    """
    total, exact = _total(state)
    shown, left, problem = state.shown, None, state.shown.problem
    over = shown.phase == TRAINING and complete(state)
    if at is not None and shown.phase in (TRAINING, VALIDATION, CHECKPOINT) and not over:
        left = steps.eta(state.steps, at, total, state.epoch_length)
        problem = "; ".join(filter(None, (problem, steps.stall(state.steps, at))))
    return replace(
        shown,
        total_steps=total, total_exact=exact, problem=problem, eta=left,
        steps_per_second=steps.rate(state.steps), steps_per_second_overall=steps.overall(state.steps),
    )  # fmt: skip


def complete(state: TrainingState) -> bool:
    """Whether the run has done all that it was to do."""
    shown = state.shown
    if state.max_steps is not None and shown.step is not None and shown.step >= state.max_steps:
        return True
    return shown.epochs is not None and state.epochs_done is not None and state.epochs_done >= shown.epochs


def _maybe_complete(state: TrainingState, at: Optional[float]) -> TrainingState:
    """Reads a record as soon as it is certainly whole, so that a step counts when it arrives and not one step later."""
    record = state.record
    if record is not None and (_LAST_PAIR.search(record.text[-40:]) or _EPOCH.match(record.text)):
        return _read_record(state, record, at)
    return state


def _read_record(state: TrainingState, record: Record, at: Optional[float]) -> TrainingState:
    state = replace(state, record=None)
    text = record.text
    if text.startswith(_FIRST_KEYS):
        return _read_settings(dict(_pairs(text)))
    if text.startswith("train/"):
        return _read_step(state, dict(_pairs(text)), at)
    if text.startswith("val/"):
        return _read_validation(state, dict(_pairs(text)))
    return _read_frame(state, text)


def _read_frame(state: TrainingState, text: str) -> TrainingState:
    match = _EPOCH.match(text)
    if match:
        return _read_epoch(state, match["kind"], int(match["epoch"]), int(match["epochs"]), match["what"])
    match = _SAVED.match(text)
    if match:
        interrupted = text.startswith("Interrupt")
        phase = INTERRUPTED if interrupted else TRAINING
        return _show(state, phase=phase, checkpoint=match["path"], checkpoint_step=state.shown.step)
    if _SAVING.match(text):
        return _show(state, phase=CHECKPOINT)
    match = _RESUMING.match(text)
    if match:
        step = int(match["step"]) if match["step"] else None
        resumed = f"epoch {int(match['epoch'] or match['middle']) + 1}"
        state = replace(_show(state, resumed=resumed), partial_epoch=match["middle"] is not None)
        return _show(state, step=step) if step is not None else state
    if _INTERRUPT.match(text):
        return _show(state, phase=INTERRUPTED)
    return state


def _read_settings(pairs: dict[str, str]) -> TrainingState:
    """A run begins by printing its settings: what was before belongs to an earlier one."""
    save_path = _setting(pairs, "save_path")
    shown = Training(
        STARTING, epochs=_whole(_setting(pairs, "epochs")), save_path=save_path.strip("'") if save_path else None
    )
    return TrainingState(shown, max_steps=_whole(_setting(pairs, "max_steps")))


def _read_epoch(state: TrainingState, kind: str, epoch: int, epochs: int, what: str) -> TrainingState:
    if kind == "Validation":
        phase = VALIDATION if what == "started" else TRAINING
        if what == "completed" and epoch >= epochs:
            phase = DONE
        return _show(state, phase=phase, epoch=epoch, epochs=epochs)
    if what == "started":
        return _show(state, phase=TRAINING, epoch=epoch, epochs=epochs)
    step = state.shown.step
    length = state.epoch_length
    if state.epochs_done == epoch - 1 and step is not None and state.done_at is not None and not state.partial_epoch:
        length = step - state.done_at
    return replace(
        _show(state, phase=TRAINING, epoch=epoch, epochs=epochs),
        epoch_length=length, epochs_done=epoch, done_at=step, partial_epoch=False,
    )  # fmt: skip


def _read_bar(state: TrainingState, line: str) -> TrainingState:
    """The bar of an epoch is printed once, at its end; that of the validation looks the same."""
    match = _BAR.search(line) if "100%" in line else None
    if match is None or state.shown.phase != TRAINING or state.partial_epoch or match["done"] != match["total"]:
        return state
    return replace(state, epoch_length=int(match["total"]))


def _read_step(state: TrainingState, pairs: dict[str, str], at: Optional[float]) -> TrainingState:
    numbers = {key: _number(value) for key, value in pairs.items()}
    logged, epoch = _whole(pairs.get("global_step")), _whole(pairs.get("epoch"))
    step = None if logged is None else logged + 1  # it is written before it is counted
    before = state.shown
    loss = numbers.get("train/loss")
    accuracy, full = _by_position(numbers, "train/cond_acc_"), _by_position(numbers, "train/full_acc_")
    broken = "train/loss" in pairs and loss is None
    shown = replace(
        before,
        phase=TRAINING if before.phase != INTERRUPTED else before.phase,
        epoch=before.epoch if epoch is None else epoch + 1,
        step=before.step if step is None else step,
        loss=loss,
        losses=(*before.losses, loss)[-KEPT:],
        accuracy=accuracy,
        accuracies=(*before.accuracies, accuracy[0] if accuracy else None)[-KEPT:],
        predicted_length=1 + sum(full) if full else None,
        learning_rate=next((value for key, value in numbers.items() if key == "lr" or key.startswith("lr/")), None),
        tokens_per_second=numbers.get("profile/tokens_per_s"),
        data_wait=numbers.get("profile/fetch_frac"),
        problem=_broken(before, step) if broken else "",
    )
    state = replace(state, shown=shown)
    if step is None:
        return state
    return replace(state, steps=steps.arrived(state.steps, step, at, shown.epoch))


def _read_validation(state: TrainingState, pairs: dict[str, str]) -> TrainingState:
    numbers = {key.replace("_epoch", ""): _number(value) for key, value in pairs.items()}
    shown = replace(
        state.shown,
        validation_loss=numbers.get("val/loss"),
        validation_accuracy=_by_position(numbers, "val/cond_acc_"),
    )
    return replace(state, shown=shown, steps=steps.pause(state.steps))


def _total(state: TrainingState) -> tuple[Optional[int], bool]:
    """Steps in all and whether that is a limit: batches of an epoch vary a little, so an epoch's length is a guess."""
    if state.max_steps is not None:
        return state.max_steps, True
    shown = state.shown
    if shown.epochs is None or state.epoch_length is None:
        return None, False
    if state.epochs_done is not None and state.done_at is not None:
        total = state.done_at + max(0, shown.epochs - state.epochs_done) * state.epoch_length
    else:
        total = shown.epochs * state.epoch_length
    return max(total, shown.step or 0), False


def _show(state: TrainingState, **changes: object) -> TrainingState:
    """The state with other words shown; whatever it was, time passed that is no step's."""
    return replace(state, shown=replace(state.shown, **changes), steps=steps.pause(state.steps))  # type: ignore[arg-type]


def _broken(before: Training, step: Optional[int]) -> str:
    if before.problem:
        return before.problem
    return "the loss is not a number" + (f" since step {step}" if step is not None else "")


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(match["key"], match["value"]) for match in _PAIR.finditer(text)]


def _by_position(numbers: dict[str, Optional[float]], name: str) -> tuple[float, ...]:
    """The values of ``name0``, ``name1`` and so on, as long as they are numbers."""
    found: list[float] = []
    while True:
        value = numbers.get(f"{name}{len(found)}")
        if value is None:
            return tuple(found)
        found.append(value)


def _setting(pairs: dict[str, str], name: str) -> Optional[str]:
    """A setting by its last name: releases differ in the group that stands before it."""
    return next((value for key, value in pairs.items() if key.rpartition("/")[2] == name), None)


def _whole(text: Optional[str]) -> Optional[int]:
    number = _number(text)
    return int(number) if number is not None and number >= 0 else None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
