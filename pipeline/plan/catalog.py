"""The stages: name, kind, parameters with type, unit, default and range, and how each is stopped."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

SERVICE = "service"
TASK = "task"


class ParameterError(ValueError):
    """A parameter that the stage does not have, or a value out of its type or range. The message is for people."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a stage. ``type`` is ``int``, ``float``, ``str``, ``bool`` or ``path`` (absolute).

    ``default`` None means: the profile's value where ``from_profile`` names one, else the tool's own default.
    """

    name: str
    type: str
    help: str
    default: Any = None
    unit: str = ""
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    from_profile: str = ""


@dataclass(frozen=True)
class Stage:
    """A stage of the pipeline.

    :param grace_seconds: how long the main process may take after SIGTERM before its whole tree is ended.
    :param watcher: which reader of its log makes its progress: ``vllm_load`` or empty.
    :param stop_costs: what is lost when it is stopped, in words that follow "Stopping loses ".
    """

    name: str
    kind: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    grace_seconds: float = 20.0
    watcher: str = ""
    stop_costs: str = ""


SERVE = Stage(
    name="serve",
    kind=SERVICE,
    summary="vLLM with the verifier: loads the model, then answers on the port until it is stopped",
    watcher="vllm_load",
    grace_seconds=20.0,
    stop_costs="the loaded model; the next start loads it again",
    parameters=(
        Parameter("verifier", "path", "model folder", from_profile="verifier"),
        Parameter("port", "int", "port of the OpenAI-compatible server, on loopback", 8000, minimum=1, maximum=65535),
        Parameter(
            "tensor_parallel",
            "int",
            "GPUs that hold one copy of the model",
            unit="GPUs",
            minimum=1,
            maximum=1024,
            from_profile="tensor_parallel",
        ),
        Parameter("max_model_len", "int", "longest sequence; the model's own limit if empty", unit="tokens", minimum=1),
        Parameter("max_num_seqs", "int", "sequences decoded at once", minimum=1),
        Parameter(
            "max_num_batched_tokens",
            "int",
            "tokens prefilled in one step; bounds activation memory",
            unit="tokens",
            minimum=1,
        ),
        Parameter(
            "gpu_memory_utilization",
            "float",
            "share of each GPU's memory for vLLM",
            minimum=0.05,
            maximum=1.0,
        ),
        Parameter("dtype", "str", "weights and activations: auto, bfloat16, float16, float32"),
        Parameter("enforce_eager", "bool", "no torch.compile and no CUDA graphs: starts faster, serves slower"),
        Parameter("served_model_name", "str", "name of the model in requests; the folder's path if empty"),
        Parameter("extra", "str", "more options for vllm serve, as on a command line"),
    ),
)

CHECK = Stage(
    name="check",
    kind=TASK,
    summary="imports the ML environment and prints its versions and devices",
    grace_seconds=5.0,
)

STAGES: tuple[Stage, ...] = (CHECK, SERVE)


def stage_named(name: str) -> Stage:
    """The stage of that name.

    :raises KeyError: with a sentence that names the nearest stage.
    """
    for stage in STAGES:
        if stage.name == name:
            return stage
    raise KeyError(f"there is no stage {name!r}{_nearest(name, [stage.name for stage in STAGES])}")


def resolve(stage: Stage, given: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """The full parameters of a run: what was given, else the profile's value, else the default; None stays None.

    :param given: values as text (from ``key=value``) or already typed.
    :raises ParameterError: for an unknown name, a value of the wrong type or out of range.
    """
    names = [parameter.name for parameter in stage.parameters]
    for name in given:
        if name not in names:
            raise ParameterError(f"{stage.name} has no parameter {name!r}{_nearest(name, names)}")
    values: dict[str, Any] = {}
    for parameter in stage.parameters:
        if parameter.name in given and given[parameter.name] not in ("", None):
            values[parameter.name] = parse_value(parameter, given[parameter.name])
        else:
            from_profile = profile.get(parameter.from_profile) if parameter.from_profile else None
            values[parameter.name] = parameter.default if from_profile is None else from_profile
    return values


def parse_value(parameter: Parameter, value: Any) -> Any:
    """The typed value of a parameter given as text or as its own type.

    :raises ParameterError: when it is not of the parameter's type or out of its range.
    """
    try:
        parsed = _PARSERS[parameter.type](value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{parameter.name}={value}: {error}") from None
    unit = f" {parameter.unit}" if parameter.unit else ""
    if parameter.minimum is not None and parsed < parameter.minimum:
        raise ParameterError(f"{parameter.name}={value}: at least {parameter.minimum:g}{unit}")
    if parameter.maximum is not None and parsed > parameter.maximum:
        raise ParameterError(f"{parameter.name}={value}: at most {parameter.maximum:g}{unit}")
    return parsed


def _parse_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("not a whole number")
    try:
        return int(value.replace("_", "").replace(",", "") if isinstance(value, str) else value)
    except ValueError:
        raise ValueError("not a whole number") from None


def _parse_float(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("not a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("not a finite number")
    return number


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    try:
        return words[str(value).lower()]
    except KeyError:
        raise ValueError("not true or false") from None


def _parse_text(value: Any) -> str:
    text = str(value)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError("control characters are not allowed")
    return text


def _parse_path(value: Any) -> str:
    text = _parse_text(value)
    if not text.startswith("/"):
        raise ValueError("an absolute path of the host is needed")
    return text


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "str": _parse_text,
    "path": _parse_path,
}


def _nearest(name: str, known: list[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; there are: {', '.join(known) or 'none'}"
