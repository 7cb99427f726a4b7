"""The command lines of the training side: the trainer with chosen settings, and the two servers of a bench. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pipeline.plan import commands, training, verifier_config
from pipeline.plan.commands import Command
from pipeline.plan.environment import Environment
from pipeline.plan.layout import Run
from pipeline.plan.training import Data, Machine, Shape

ASSUMED_DATA = Data(samples=1000, tokens=503_000, longest=2048)
ASSUMED_SHAPE = Shape(hidden=7168, vocabulary=163_840, draft_vocabulary=32_000)
"""What a dry run takes for the data, and for a verifier that is not there: 1,000 samples with reasoning, Kimi-K2.5."""

RECORDS = "metrics.jsonl"


def wrapper(values: Mapping[str, Any], run: Run, stage: object) -> list[str]:
    """The options of our wrapper around the trainer.

    :param stage: the stage's process, with whose end the trainer stops.
    """
    options = ["--records", str(run.output / RECORDS), "--stage", str(stage)]
    options += ["--fused-optimizer"] if values.get("fused_optimizer") else []
    return options if values.get("keep_embedding") else [*options, "--drop-embedding"]


def train(values: Mapping[str, Any], environment: Environment, run: Run, stage: object) -> tuple[str, ...]:
    """The trainer's command for chosen settings.

    :raises SettingsError: when ``trainer_options`` cannot be used.
    """
    options = training.trainer_options(values, str(run.prepared), str(run.output))
    return training.argv(environment.python, values, wrapper(values, run, stage), options)


def train_shown(parameters: Mapping[str, Any], environment: Environment, workspace: str) -> tuple[Command, ...]:
    """The trainer as it would start on ``ASSUMED_DATA`` with the GPUs of the profile."""
    machine = Machine(
        gpus=0 if environment.cpu_only else parameters["gpus"] or 1,
        cores=os.cpu_count() or 1,
    )
    vocabulary = parameters["draft_vocab_size"] or ASSUMED_SHAPE.draft_vocabulary
    settings = training.choose(
        {**parameters, "draft_vocab_size": vocabulary}, machine, ASSUMED_DATA, _shape(parameters, vocabulary)
    )
    return (Command(train(settings.values, environment, Run(workspace, parameters["run"]), "STAGE")),)


def bench_shown(parameters: Mapping[str, Any], environment: Environment, workspace: str) -> tuple[Command, ...]:
    """The servers that are measured, but for those that run: without the draft, then with it."""
    draft = parameters["draft"] or str(Run(workspace, parameters["run"]).draft)
    values = {**parameters, "port": "PORT", "max_num_seqs": parameters["concurrency"]}
    kinds = [commands.PLAIN] if not parameters["plain_endpoint"] else []
    kinds += [commands.DRAFT] if not parameters["draft_endpoint"] else []
    return tuple(commands.serve({**values, "kind": kind, "draft": draft}, environment) for kind in kinds)


def _shape(parameters: Mapping[str, Any], vocabulary: int) -> Shape:
    try:
        found = verifier_config.read(parameters["verifier"] or "")
    except verifier_config.ConfigError:
        return ASSUMED_SHAPE
    return Shape(found.hidden_size, found.vocab_size, min(vocabulary, found.vocab_size))
