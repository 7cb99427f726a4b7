"""Recipes: stages in their order, from prompts to a measured draft, as one job. The data, and what follows from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.plan.stage import TASK, Parameter, Stage, resolve


@dataclass(frozen=True)
class Recipe:
    """The stages of a recipe.

    :param stages: by name, in their order.
    :param fixed: parameters that make the recipe, by stage; they are not the user's to choose.
    """

    name: str
    summary: str
    stages: tuple[str, ...]
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_CHAIN = ("prompts", "synthesize", "prepare", "extract", "vocab", "train", "export", "bench")

CLASSIC = Recipe(
    "classic",
    "every stage in turn, from prompts to the measured draft; loads the verifier four times, twice of it to measure",
    _CHAIN,
    {"synthesize": {"states": False}},
)

ONE_PASS = Recipe(
    "one_pass",
    "like classic, but the answers bring their hidden states along: loads the verifier once less",
    _CHAIN,
    {"synthesize": {"states": True}},
)

RECIPES = (CLASSIC, ONE_PASS)

ALIASES = {recipe.name.replace("_", "-"): recipe.name for recipe in RECIPES}
"""How recipes are called on the command line, where a job's id has room for letters and digits only."""


def as_stage(recipe: Recipe, known: Sequence[Stage]) -> Stage:
    """The recipe as a stage of the catalogue: its parameters are those of its stages, one for each name.

    Where stages have different defaults for a name the recipe's is None: each stage keeps its own.
    """
    stages = [_named(name, known) for name in recipe.stages]
    parameters: dict[str, Parameter] = {}
    for stage in stages:
        for parameter in stage.parameters:
            if parameter.name in recipe.fixed.get(stage.name, {}):
                continue
            first = parameters.setdefault(parameter.name, parameter)
            if first.default != parameter.default:
                parameters[parameter.name] = dataclasses.replace(first, default=None)
    return Stage(
        name=recipe.name,
        kind=TASK,
        summary=recipe.summary,
        watcher="events",
        grace_seconds=max(stage.grace_seconds for stage in stages),
        stop_costs="the piece of work in hand; what is finished is kept",
        inputs=stages[0].inputs,
        outputs=tuple(output for stage in stages for output in stage.outputs),
        resources="the GPUs that hold the verifier",
        resume="goes on at the first stage whose work is not proven; what is up to date is skipped",
        needs=tuple(dict.fromkeys(need for stage in stages for need in stage.needs)),
        parameters=tuple(parameters.values()),
    )


def parameters_of(recipe: Recipe, stage: Stage, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of one stage of the recipe, from the recipe's resolved ones.

    :raises ParameterError: when a value does not suit this stage.
    """
    names = {parameter.name for parameter in stage.parameters}
    given = {name: value for name, value in values.items() if name in names and value is not None}
    return resolve(stage, {**given, **recipe.fixed.get(stage.name, {})}, {})


def recipe_named(name: str) -> Recipe:
    """The recipe of that name.

    :raises KeyError: when there is none.
    """
    return {recipe.name: recipe for recipe in RECIPES}[name]


def _named(name: str, known: Sequence[Stage]) -> Stage:
    return {stage.name: stage for stage in known}[name]
