"""A training run of ours in the shape that every training run has, from the figures of its stage. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eagle_console.adopted import TRAIN
from pipeline.plan.recipes import RECIPES
from remote.protocol.jobs import Job
from remote.protocol.series import ACCURACY, LOSS, TrainingSeries
from remote.protocol.training import Training

TRAINING_STAGES = (TRAIN, *(recipe.name for recipe in RECIPES))
"""Stages whose jobs train a draft: a recipe does so in one of its parts."""


_HISTORY = 16
"""Points of a history: the cells of a sparkline."""


def training_of(job: Job) -> Training | None:
    """What the job's progress says about its run; None for a job that trains nothing, or has not told its figures.

    The list of jobs leaves the figures of old ended jobs out; the operation ``job`` has them.
    """
    figures = job.progress.figures
    if job.stage not in TRAINING_STAGES or not figures:
        return None
    counted = job.progress.unit == "steps"
    full = _by_position(figures, "full_acc_")
    return Training(
        phase=job.progress.phase,
        epoch=_whole(figures.get("epoch")),
        epochs=_whole(figures.get("epochs")),
        step=_whole(job.progress.done) if counted else _whole(figures.get("step")),
        total_steps=_whole(job.progress.total) if counted else None,
        total_exact=True,
        steps_per_second=(job.progress.rate if counted else None) or figures.get("steps_per_second"),
        steps_per_second_overall=figures.get("steps_per_second_overall"),
        tokens_per_second=figures.get("tokens_per_second"),
        data_wait=figures.get("waiting_for_data"),
        loss=figures.get("loss"),
        accuracy=_by_position(figures, "cond_acc_"),
        predicted_length=1 + sum(full) if full else None,
        learning_rate=figures.get("learning_rate"),
        validation_loss=figures.get("validation_loss"),
        validation_accuracy=_by_position(figures, "validation_cond_acc_"),
        problem=job.progress.bottleneck,
        eta=job.progress.eta,
    )


def with_course(training: Training, course: TrainingSeries) -> Training:
    """The run with the histories of its loss and accuracy, evenly over its whole length; the newest value is the last.

    A run whose log has told them keeps its own.
    """
    found = {item.name: item.values for item in course.series}
    return replace(
        training,
        losses=training.losses or _evenly(found.get(LOSS, ())),
        accuracies=training.accuracies or _evenly(found.get(f"{ACCURACY}0", ())),
    )


def _evenly(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """At most ``_HISTORY`` of the values with the same distance between them; the last one is among them."""
    step = max(1, -(-len(values) // _HISTORY))
    return tuple(values[::-1][::step][::-1])


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _by_position(figures: Mapping[str, float], name: str) -> tuple[float, ...]:
    found: list[float] = []
    while (value := figures.get(f"{name}{len(found)}")) is not None:
        found.append(value)
    return tuple(found)
