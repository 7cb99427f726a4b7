"""What it would cost to make a thing again, from the times on the disk. Pure.

An epoch took as long as the time between the weights of two checkpoints; a set of hidden states as long as the time
from its first file to its last. Times that a copy has squeezed together say nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Optional

from remote.disk.evidence import Rebuild
from remote.protocol.artifacts import Checkpoint

SHORTEST_EPOCH = 1.0
"""Seconds; checkpoints that are closer together were copied."""

FILES_A_SECOND = 2000.0
"""No verifier makes hidden states faster: files that are closer together were copied."""


def epoch_seconds(checkpoints: Sequence[Checkpoint]) -> Optional[float]:
    """The median time of an epoch of a run; None where it cannot be told."""
    dated = sorted(
        (item.epoch, item.artifact.modified)
        for item in checkpoints
        if item.epoch is not None and item.artifact.modified is not None and item.name.isdecimal()
    )
    gaps = [
        (after - before) / (number - previous)
        for (previous, before), (number, after) in zip(dated, dated[1:])
        if number > previous and after - before >= SHORTEST_EPOCH
    ]
    return statistics.median(gaps) if gaps else None


def of_checkpoint(item: Checkpoint, run: Sequence[Checkpoint]) -> Optional[Rebuild]:
    """Training again from the nearest older checkpoint that can resume, or from the start."""
    seconds = epoch_seconds(run)
    if seconds is None or item.epoch is None:
        return None
    older = [one.epoch for one in run if one.resumable and one.epoch is not None and one.epoch < item.epoch]
    start = max(older, default=-1)
    minutes = (item.epoch - start) * seconds / 60
    place = f"from epoch {start}" if older else "from the start"
    return Rebuild(minutes, f"training {place}: an epoch took {_minutes(seconds)}, by the times of the checkpoints")


def of_run(checkpoints: Sequence[Checkpoint]) -> Optional[Rebuild]:
    """Training the whole run again."""
    seconds = epoch_seconds(checkpoints)
    epochs = [item.epoch for item in checkpoints if item.epoch is not None]
    if seconds is None or not epochs:
        return None
    count = max(epochs) + 1
    return Rebuild(count * seconds / 60, f"{count} epochs of {_minutes(seconds)}, by the times of the checkpoints")


def of_states(samples: Optional[int], oldest: Optional[float], newest: Optional[float]) -> Optional[Rebuild]:
    """Running the verifier over the data again; loading it is not counted."""
    if not samples or samples < 2 or oldest is None or newest is None:
        return None
    seconds = newest - oldest
    if seconds <= 0 or samples / seconds > FILES_A_SECOND:
        return None
    return Rebuild(seconds / 60, f"its {samples:,} samples took {_minutes(seconds)}, by the times of their files")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
