"""A training run as its console output shows it: how far, how fast, how good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from remote.protocol.progress import Eta


@dataclass(frozen=True)
class Training:
    """The latest word of a training run. What its output has not said is None.

    :param phase: ``starting``, ``training``, ``validation``, ``checkpoint``, ``done`` or ``interrupted``.
    :param epoch, epochs: the running epoch, counted from 1, and how many there will be.
    :param step, total_steps: optimiser steps over all epochs; the total is None until an epoch has shown its length.
    :param total_exact: the total is a limit that was set (``max_steps``), not a length of earlier epochs.
    :param steps_per_second: now, from steps that were seen to arrive, pauses left out; None until two have.
    :param steps_per_second_overall: the same over the whole run since it was watched.
    :param eta: when all steps will be done, with the pauses for validation and checkpoints that are still to come; None
        while the total or the rate is not known.
    :param tokens_per_second, data_wait: the run's own figures of its last profiled step; ``data_wait`` is the share of
        the step spent waiting for data, 0 to 1.
    :param loss, losses: of the last step and of the steps before it, the newest last; None for one that is no number.
    :param accuracy, accuracies: conditional accuracy by position of the last step, and that of position 0 over time.
    :param predicted_length: acceptance length that the last step's full accuracies predict, 1 + their sum.
    :param validation_loss, validation_accuracy: of the last validation.
    :param checkpoint: path of the last checkpoint that was saved; ``checkpoint_step`` the step it holds.
    :param problem: what is wrong with the run, in words: the loss is no number, no step comes; empty when nothing is.
    """

    phase: str = ""
    epoch: Optional[int] = None
    epochs: Optional[int] = None
    step: Optional[int] = None
    total_steps: Optional[int] = None
    total_exact: bool = False
    steps_per_second: Optional[float] = None
    tokens_per_second: Optional[float] = None
    data_wait: Optional[float] = None
    loss: Optional[float] = None
    losses: tuple[Optional[float], ...] = ()
    accuracy: tuple[float, ...] = ()
    accuracies: tuple[Optional[float], ...] = ()
    predicted_length: Optional[float] = None
    learning_rate: Optional[float] = None
    validation_loss: Optional[float] = None
    validation_accuracy: tuple[float, ...] = ()
    checkpoint: Optional[str] = None
    checkpoint_step: Optional[int] = None
    save_path: Optional[str] = None
    resumed: str = ""
    problem: str = ""
    steps_per_second_overall: Optional[float] = None
    eta: Optional[Eta] = None
