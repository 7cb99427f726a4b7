"""The command of each stage, and what it runs in turn: one table for dry runs and launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.plan import commands, data_commands, serving, setup_stage, training_commands
from pipeline.plan.catalog import stage_named
from pipeline.plan.commands import Command
from pipeline.plan.environment import Environment
from pipeline.plan.recipes import RECIPES, Recipe, parameters_of

Shown = Callable[[Mapping[str, Any], Environment, str], "tuple[Command, ...]"]

_SHOWN: dict[str, Shown] = {
    "synthesize": data_commands.synthesize_shown,
    "prepare": data_commands.prepare_shown,
    "extract": data_commands.extract_shown,
    "train": training_commands.train_shown,
    "bench": training_commands.bench_shown,
}


def command(
    stage: str, parameters: Mapping[str, Any], environment: Environment, workspace: str = "WORKSPACE"
) -> Command:
    """The command of the stage of that name. What only the host's data tells stands in it as a word in capitals.

    :param workspace: the folder that the runs are in.
    :raises ValueError: when the parameters do not make a command line.
    """
    if stage == "setup":
        return Command(_stage(environment, stage), shown=setup_stage.shown(parameters, workspace))
    if stage == "serve":
        return commands.serve(serving.complete(parameters, workspace), environment)
    for recipe in RECIPES:
        if recipe.name == stage:
            return Command(_stage(environment, stage), shown=_recipe(recipe, parameters, environment, workspace))
    shown = _SHOWN[stage](parameters, environment, workspace) if stage in _SHOWN else ()
    return Command(_stage(environment, stage), shown=shown)


def _recipe(
    recipe: Recipe, parameters: Mapping[str, Any], environment: Environment, workspace: str
) -> tuple[Command, ...]:
    parts = map(stage_named, recipe.stages)
    return tuple(command(part.name, parameters_of(recipe, part, parameters), environment, workspace) for part in parts)


def _stage(environment: Environment, stage: str) -> tuple[str, ...]:
    return (environment.python, "-m", "pipeline.stages", stage)
