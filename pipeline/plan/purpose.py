"""What a stage does with the verifier, by its name and parameters: its servers, and what it asks of versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.plan import versions
from pipeline.plan.catalog import stage_named
from pipeline.plan.commands import DRAFT, EXTRACTION, PLAIN
from pipeline.plan.recipes import RECIPES, parameters_of

Server = Mapping[str, Any]


def servers(stage: str, parameters: Mapping[str, Any]) -> tuple[Server, ...]:
    """The servers that the stage starts one after the other, each as parameters of ``serve``; none where a running one
    is used."""
    running = parts(stage, parameters)
    if len(running) > 1:
        return tuple(server for name, values in running for server in servers(name, values))
    if stage == "serve":
        return (parameters,)
    if stage == "bench":
        plain = () if parameters.get("plain_endpoint") else ({**parameters, "kind": PLAIN},)
        draft = () if parameters.get("draft_endpoint") else ({**parameters, "kind": DRAFT},)
        return (*plain, *draft)
    if stage not in ("synthesize", "extract") or parameters.get("endpoint"):
        return ()
    kind = EXTRACTION if stage == "extract" or parameters.get("states") else PLAIN
    return ({**parameters, "kind": kind},)


def uses(stage: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """What the versions are used for: words of ``pipeline.plan.versions``."""
    running = parts(stage, parameters)
    if len(running) > 1:
        return frozenset().union(*(uses(name, values) for name, values in running))
    kinds = {server.get("kind") for server in servers(stage, parameters)}
    found = {versions.EXTRACTION} if EXTRACTION in kinds else set()
    found |= {versions.DRAFT} if DRAFT in kinds else set()
    found |= {versions.TRAINING} if stage == "train" else set()
    found |= {versions.RENDER} if stage == "prepare" else set()
    return frozenset(found)


def parts(stage: str, parameters: Mapping[str, Any]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The stages that run, with their parameters: itself, or those of the recipe."""
    recipe = next((recipe for recipe in RECIPES if recipe.name == stage), None)
    if recipe is None:
        return ((stage, parameters),)
    named = map(stage_named, recipe.stages)
    return tuple((part.name, parameters_of(recipe, part, parameters)) for part in named)
