"""The trainer's save path: which checkpoints are whole, and how an interrupted or torn one is made usable again.

speculators 0.9.0 writes a folder ``N`` for epoch N in place, continues from the largest N, and fails when that one is
torn. On a signal it writes ``interrupted``, which it then ignores; with a number for a name and a
``training_state.json`` it continues from it in the middle of the epoch. Our trainer adds that file; where speculators
itself was interrupted the place follows from the scheduler's steps. Nothing is deleted here: what stands in the way is
renamed to a name that the trainer passes over.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan.manifest import write_json
from pipeline.plan.safetensors import HeaderError, read_header

INTERRUPTED = "interrupted"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer_state_dict.pt"
SCHEDULER = "scheduler_state_dict.pt"
STATE = "training_state.json"


@dataclass(frozen=True)
class TrainingState:
    """Where a checkpoint stands. ``local_step`` 0 means the end of the epoch, else batches done within it."""

    epoch: int
    local_step: int
    global_step: int


def epochs(save_path: Path) -> list[int]:
    """The numbers of the checkpoint folders, ascending; symbolic links are other names of the same folders."""
    try:
        entries = list(os.scandir(save_path))
    except FileNotFoundError:
        return []
    return sorted(
        int(entry.name) for entry in entries if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False)
    )


def started(save_path: Path) -> bool:
    """Whether there is any checkpoint."""
    return bool(epochs(save_path)) or (save_path / INTERRUPTED).is_dir()


def fault(folder: Path, resumable: bool = True) -> Optional[str]:
    """What is wrong with a checkpoint folder, a sentence without its point; None when it is whole.

    :param resumable: also asks for what continuing needs: the optimizer's state and the place in the epoch.
    """
    try:
        read_header(str(folder / MODEL))
        _read_json(folder / "config.json")
        if resumable:
            read_state(folder)
            return _archive_fault(folder)
    except HeaderError as error:
        return str(error).replace(f"{folder}{os.sep}", "")
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError):
        return "its JSON files cannot be read"
    return None


def _archive_fault(folder: Path) -> Optional[str]:
    """torch.save writes a zip archive, whose directory comes last: a cut one has none."""
    for name in (OPTIMIZER, SCHEDULER):
        if (name == OPTIMIZER or (folder / name).exists()) and not zipfile.is_zipfile(folder / name):
            return f"{name} is {'cut' if (folder / name).exists() else 'missing'}"
    return None


def unplaced(save_path: Path) -> bool:
    """Whether there is an interrupted checkpoint that is whole but for its place, which its scheduler tells."""
    folder = save_path / INTERRUPTED
    if not (folder / SCHEDULER).exists() or (folder / STATE).exists():
        return False
    return fault(folder, resumable=False) is None and _archive_fault(folder) is None


def place(steps: int, of_epoch: Callable[[int], int]) -> TrainingState:
    """Where a run stands after so many steps.

    :param of_epoch: the steps of an epoch, by its number; at least one.
    """
    epoch, left = 0, steps
    while left >= (whole := of_epoch(epoch)):
        left -= whole
        epoch += 1
    return standing(epoch, left, steps)


def standing(epoch: int, local_step: int, global_step: int) -> TrainingState:
    """The state after so many steps of an epoch. After none it is the end of the one before; of epoch -1 at the very
    beginning."""
    return TrainingState(epoch if local_step else epoch - 1, local_step, global_step)


def read_state(folder: Path) -> TrainingState:
    """The place in the run that a checkpoint was made at.

    :raises OSError: when the file cannot be read. :raises ValueError: when it is not what the trainer writes.
    """
    data = _read_json(folder / STATE)
    try:
        return TrainingState(int(data["epoch"]), int(data["local_step"]), int(data["global_step"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / STATE} has no usable {error}") from None


def write_state(folder: Path, state: TrainingState) -> None:
    """Says where the checkpoint stands, the way the trainer reads it. Written last: it marks the folder as whole.

    :raises OSError: when it cannot be written.
    """
    write_json(folder / STATE, {"epoch": state.epoch, "local_step": state.local_step, "global_step": state.global_step})


def finished(save_path: Path, count: int) -> bool:
    """Whether the last of ``count`` epochs is there, whole and at its end."""
    folder = save_path / str(count - 1)
    try:
        return fault(folder) is None and read_state(folder).local_step == 0
    except (OSError, ValueError):
        return False


def make_resumable(save_path: Path) -> list[str]:
    """Makes the newest usable state the one that the trainer continues from; what was done, a sentence each.

    :raises OSError: when a folder cannot be renamed.
    """
    return [*_set_torn_aside(save_path), *_adopt(save_path)]


def _set_torn_aside(save_path: Path) -> Iterator[str]:
    for epoch in reversed(epochs(save_path)):
        wrong = fault(save_path / str(epoch))
        if wrong is None:
            return
        kept = _set_aside(save_path / str(epoch), f"torn_epoch{epoch}")
        before = [number for number in epochs(save_path) if number < epoch]
        then = f"training continues from epoch {before[-1] + 1}" if before else "training begins anew"
        yield f"The checkpoint of epoch {epoch + 1} is torn ({wrong}); it is kept as {kept}, and {then}."


def _adopt(save_path: Path) -> Iterator[str]:
    folder = save_path / INTERRUPTED
    if not folder.is_dir():
        return
    if unplaced(save_path):
        yield "speculators has left an interrupted epoch without its place; the trainer finds it by the steps done."
        return
    wrong = fault(folder)
    if wrong is not None:
        kept = _set_aside(folder, f"torn_{INTERRUPTED}")
        yield f"The interrupted checkpoint is torn ({wrong}); it is kept as {kept}."
        return
    state = read_state(folder)
    if state.epoch < 0:
        yield f"Training was interrupted before its first step; that state is kept as {_set_aside(folder, 'no_step')}."
        return
    newest = max(epochs(save_path), default=-1)
    target = save_path / str(state.epoch)
    if newest > state.epoch or (target.is_dir() and read_state(target).global_step >= state.global_step):
        kept = _set_aside(folder, f"superseded_{INTERRUPTED}")
        yield f"The interrupted checkpoint is older than epoch {newest + 1}; it is kept as {kept}."
        return
    if target.is_dir():
        kept = _set_aside(target, f"superseded_epoch{state.epoch}")
        yield f"The checkpoint within epoch {state.epoch + 1} is older than the interrupted one; it is kept as {kept}."
    folder.rename(target)
    where = f"in epoch {state.epoch + 1} after its step {state.local_step}"
    if not state.local_step:
        where = f"after epoch {state.epoch + 1}"
    yield f"Training continues {where} (step {state.global_step})."


def _set_aside(folder: Path, name: str) -> str:
    target = folder.with_name(name)
    number = 1
    while target.exists() or target.is_symlink():
        number += 1
        target = folder.with_name(f"{name}_{number}")
    folder.rename(target)
    return target.name


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
