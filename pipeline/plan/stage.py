"""What a stage is: parameters with type, unit, default and range, what it reads and writes, and how it is stopped."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
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

    :param choices: the only values, where there are not many.
    :param pattern: what a text must match as a whole, with ``pattern_words`` for people.
    :param shapes_result: another value gives another result. What only makes the work faster or slower (ports,
        concurrency) does not, and finished work stays valid when it changes.
    """

    name: str
    type: str
    help: str
    default: Any = None
    unit: str = ""
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    from_profile: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ""
    pattern_words: str = ""
    shapes_result: bool = True


@dataclass(frozen=True)
class Stage:
    """A stage of the pipeline.

    :param grace_seconds: how long the main process may take after SIGTERM before its whole tree is ended.
    :param watcher: who makes its progress: ``vllm_load`` (from its log), ``events`` (from its progress file), or none.
    :param stop_costs: what is lost when it is stopped, in words that follow "Stopping loses ".
    :param inputs, outputs: what it reads and writes, as paths below the workspace with NAME for the run's name.
    :param resources: what it needs of the host: GPUs, memory, disk.
    :param resume: what a second start does with what the first has left.
    :param needs: what the ML environment must hold: distributions by name.
    :param host_python: it runs in the agent's own Python, since it is there before any ML environment is.
    """

    name: str
    kind: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    grace_seconds: float = 20.0
    watcher: str = ""
    stop_costs: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    resources: str = ""
    resume: str = ""
    needs: tuple[str, ...] = ()
    host_python: bool = False

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name.

        :raises KeyError: when the stage has none.
        """
        return {parameter.name: parameter for parameter in self.parameters}[name]


def resolve(stage: Stage, given: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """The full parameters of a run: what was given, else the profile's value, else the default; None stays None.

    :param given: values as text (from ``key=value``) or already typed.
    :raises ParameterError: for an unknown name, a value of the wrong type or out of range.
    """
    names = [parameter.name for parameter in stage.parameters]
    for name in given:
        if name not in names:
            raise ParameterError(f"{stage.name} has no parameter {name!r}{nearest(name, names)}")
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
    if parameter.choices and parsed not in parameter.choices:
        raise ParameterError(f"{parameter.name}={value}: one of {', '.join(parameter.choices)}")
    if parameter.pattern and not re.fullmatch(parameter.pattern, str(parsed)):
        raise ParameterError(f"{parameter.name}={value}: {parameter.pattern_words or parameter.pattern}")
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


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: the known one it was perhaps meant for, else all of them."""
    matches = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; there are: {', '.join(known) or 'none'}"
