"""The course of a training run: what its records hold, thinned to what a plot can show (operation ``series``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

MAX_POINTS = 240
"""Points of one series on the wire: more than a terminal has columns."""

LOSS, PREDICTED, ACCURACY = "loss", "predicted_length", "accuracy_"
LEARNING_RATE, STEP_RATE, TOKEN_RATE, DATA_WAIT = (
    "learning_rate", "steps_per_second", "tokens_per_second", "data_wait",
)  # fmt: skip
VALIDATION_LOSS, VALIDATION_PREDICTED = "validation_loss", "validation_predicted_length"


@dataclass(frozen=True)
class Series:
    """One figure over the optimiser steps, which only grow. A value that is no finite number is None.

    :param name: one of this module's names; ``accuracy_N`` is the conditional accuracy at position N of the draft,
        ``predicted_length`` 1 + the sum of the full accuracies.
    """

    name: str
    steps: tuple[int, ...] = ()
    values: tuple[Optional[float], ...] = ()


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that the run has written, as its records tell it.

    :param epoch: counted from 0 as in the folder's name; None for one that an interruption left.
    :param wall: when it was saved, seconds since the epoch; None where the record has no time.
    """

    path: str
    epoch: Optional[int] = None
    step: Optional[int] = None
    bytes: Optional[int] = None
    wall: Optional[float] = None


@dataclass(frozen=True)
class TrainingSeries:
    """The course of the run that a job, or an adopted process, writes.

    Every series keeps its extremes: of each stretch of steps the lowest and the highest point.

    :param job: the id that was asked for.
    :param folder: where the run saves; empty where that is not known.
    :param source: the file that was read; empty where there is none.
    :param epochs: the step at which each epoch began, the first one first.
    :param checkpoints: in the order of their steps.
    :param broken_since: the first step whose loss is no number, up to now; None while it is one.
    :param complete: the file was read to its end; a long one is read in several requests.
    :param problem: why there is no course; empty where there is one.
    """

    job: str
    folder: str = ""
    source: str = ""
    series: tuple[Series, ...] = ()
    epochs: tuple[int, ...] = ()
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    broken_since: Optional[int] = None
    complete: bool = True
    problem: str = ""
