"""Recipes: their parameters, what each stage gets, and the command lines of the whole chain."""

from __future__ import annotations

import pytest

from pipeline.plan import stage_commands
from pipeline.plan.catalog import STAGES, stage_named
from pipeline.plan.environment import Environment
from pipeline.plan.recipes import ALIASES, CLASSIC, ONE_PASS, RECIPES, parameters_of, recipe_named
from pipeline.plan.stage import ParameterError, resolve
from remote.jobs.records import JOB_ID

GPU = Environment(
    "/ml/bin/python", True, "/ml/lib/python3.11/site-packages", {"vllm": "0.32.0", "speculators": "0.9.0"}
)
PROFILE = {"verifier": "/models/Kimi-K2.5", "tensor_parallel": 8}


def test_recipes_are_stages_that_end_by_themselves_and_that_are_stopped_as_slowly_as_their_slowest() -> None:
    for recipe in RECIPES:
        stage = stage_named(recipe.name)
        parts = [stage_named(name) for name in recipe.stages]
        assert stage.kind == "task" and stage.watcher == "events"
        assert stage.grace_seconds == max(part.grace_seconds for part in parts) == 300
        assert JOB_ID.match(f"{recipe.name}-20260101-000000-abcd"), "a job of it can be named"
        assert stage.parameter("verifier").from_profile == "verifier"
        assert {"vllm", "speculators"} <= set(stage.needs)
    assert ALIASES["one-pass"] == "one_pass" and recipe_named("classic") is CLASSIC


def test_every_parameter_of_a_part_is_the_recipes_but_for_what_makes_it() -> None:
    stage = stage_named("one_pass")
    names = {parameter.name for part in map(stage_named, ONE_PASS.stages) for parameter in part.parameters}
    assert {parameter.name for parameter in stage.parameters} == names - {"states"}
    values = resolve(stage, {"run": "mine", "seed": 3}, PROFILE)
    parts = {name: parameters_of(ONE_PASS, stage_named(name), values) for name in ONE_PASS.stages}
    assert {values["run"] for values in parts.values()} == {"mine"}
    assert parts["synthesize"]["states"] is True and parts["prompts"]["seed"] == parts["prepare"]["seed"] == 3
    assert parts["synthesize"]["verifier"] == parts["bench"]["verifier"] == "/models/Kimi-K2.5"
    assert parts["synthesize"]["tensor_parallel"] == 8
    classic = parameters_of(CLASSIC, stage_named("synthesize"), resolve(stage_named("classic"), {}, PROFILE))
    assert classic["states"] is False


def test_different_defaults_stay_each_stages_own_until_one_is_given() -> None:
    stage = stage_named("classic")
    assert stage.parameter("concurrency").default is None
    values = resolve(stage, {}, PROFILE)
    own = {name: parameters_of(CLASSIC, stage_named(name), values).get("concurrency") for name in CLASSIC.stages}
    assert own == {name: _default(name, "concurrency") for name in CLASSIC.stages}
    values = resolve(stage, {"concurrency": 7}, PROFILE)
    assert parameters_of(CLASSIC, stage_named("extract"), values)["concurrency"] == 7


def _default(stage: str, parameter: str) -> object:
    return next((known.default for known in stage_named(stage).parameters if known.name == parameter), None)


def test_a_value_that_a_part_refuses() -> None:
    with pytest.raises(ParameterError, match="broken_lines"):
        resolve(stage_named("classic"), {"broken_lines": "perhaps"}, PROFILE)


def test_a_dry_run_shows_every_command() -> None:
    values = resolve(stage_named("classic"), {"run": "1k"}, PROFILE)
    lines = stage_commands.command("classic", values, GPU, "/data").line.splitlines()
    text = "\n".join(lines)
    for words in (
        "vllm serve /models/Kimi-K2.5",
        "--tensor-parallel-size 8",
        "speculators regenerate-responses",
        "--max-tokens 8192",
        "speculators prepare-data",
        "--no-skip-token-freq",
        "extract_hidden_states",
        "speculators generate-offline-data --model /models/Kimi-K2.5",
        "/data/data_1k/prepared/hidden_states",
    ):
        assert words in text, words
    one_pass = stage_commands.command("one_pass", resolve(stage_named("one_pass"), {}, PROFILE), GPU, "/data").line
    assert "regenerate-responses" not in one_pass
    serving = [line for line in one_pass.splitlines() if "vllm serve" in line]
    assert "ExampleHiddenStatesConnector" in serving[0]


def test_a_dry_run_needs_nothing() -> None:
    for stage in STAGES:
        command = stage_commands.command(stage.name, resolve(stage, {}, {}), Environment("python", exists=False))
        assert command.line and command.argv
