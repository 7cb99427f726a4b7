"""Stages and their parameters: what is accepted, from where a value comes, and what a mistake says."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.plan.catalog import CHECK, SERVE, STAGES, stage_named
from pipeline.plan.stage import ParameterError, parse_value, resolve


def parameter(name: str):
    return next(parameter for parameter in SERVE.parameters if parameter.name == name)


def test_a_stage_is_found_by_its_name() -> None:
    assert [stage_named(stage.name) for stage in STAGES] == list(STAGES)
    with pytest.raises(KeyError, match="did you mean 'serve'"):
        stage_named("server")
    with pytest.raises(KeyError, match=f"there are: {', '.join(stage.name for stage in STAGES)}"):
        stage_named("xyzzy")


def test_where_a_value_comes_from() -> None:
    profile = {"verifier": "/models/profile", "tensor_parallel": 8}
    values = resolve(SERVE, {"port": "8001", "max_model_len": ""}, profile)
    assert set(values) == {parameter.name for parameter in SERVE.parameters}
    assert (values["verifier"], values["tensor_parallel"]) == ("/models/profile", 8)
    assert values["port"] == 8001
    assert values["max_model_len"] is None, "empty is not given"
    assert resolve(SERVE, {"verifier": "/mine"}, profile)["verifier"] == "/mine"
    assert resolve(SERVE, {}, {"tensor_parallel": None})["tensor_parallel"] is None
    assert resolve(CHECK, {}, profile) == {}


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ParameterError, match=r"no parameter 'max_len'.*did you mean 'max_model_len'"):
        resolve(SERVE, {"max_len": 1}, {})
    with pytest.raises(ParameterError, match="there are: none"):
        resolve(CHECK, {"x": 1}, {})


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("port", "8000", 8000),
        ("port", 8000.0, 8000),
        ("max_model_len", "131,072", 131072),
        ("max_model_len", "131_072", 131072),
        ("gpu_memory_utilization", "0.92", 0.92),
        ("gpu_memory_utilization", 1, 1.0),
        ("enforce_eager", "Yes", True),
        ("enforce_eager", "0", False),
        ("enforce_eager", True, True),
        ("verifier", "/models/a b", "/models/a b"),
        ("extra", "--max-logprobs 5", "--max-logprobs 5"),
    ],
)
def test_values(name: str, value: Any, parsed: Any) -> None:
    found = parse_value(parameter(name), value)
    assert found == parsed and type(found) is type(parsed)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("port", "0", "at least 1"),
        ("port", "65536", "at most 65535"),
        ("port", "8000.5", "not a whole number"),
        ("port", 8000.5, "not a whole number"),
        ("port", True, "not a whole number"),
        ("port", "", "not a whole number"),
        ("port", [8000], "port="),
        ("max_model_len", "-1", "at least 1 tokens"),
        ("gpu_memory_utilization", "nan", "not a finite number"),
        ("gpu_memory_utilization", "inf", "not a finite number"),
        ("gpu_memory_utilization", "90%", "not a number"),
        ("gpu_memory_utilization", "1.5", "at most 1"),
        ("enforce_eager", "maybe", "not true or false"),
        ("verifier", "models/x", "absolute path"),
        ("verifier", "/models/\nx", "control characters"),
        ("dtype", "bf16\x1b[2J", "control characters"),
    ],
)
def test_values_that_are_refused(name: str, value: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        parse_value(parameter(name), value)
