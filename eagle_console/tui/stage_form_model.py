"""The parameter form without its widgets: which values are right, and whether the stage can be started now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eagle_console.text import clean
from pipeline.plan.stage import Parameter, ParameterError, parse_value
from remote.protocol.jobs import Job
from remote.protocol.stages import VERDICT_BLOCKED, ParameterInfo, StageInfo

_KNOWN_TYPES = ("int", "float", "str", "bool", "path")
_TYPE_WORDS = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "bool": "true or false",
    "path": "absolute path",
}


def check_value(info: ParameterInfo, text: str) -> str:
    """What is wrong with a value as typed, in clean words; empty when it is right. Empty text means: the default."""
    if not text:
        return ""
    try:
        parse_value(_parameter(info), text)
    except ParameterError as error:
        return clean(error).removeprefix(clean(f"{info.name}={text}: "))
    return ""


def given(parameters: tuple[ParameterInfo, ...], texts: Mapping[str, str]) -> dict[str, Any]:
    """The typed values of the fields that are not empty. Fields with a wrong value are left out."""
    values = {}
    for info in parameters:
        text = texts.get(info.name, "").strip()
        if text and not check_value(info, text):
            values[info.name] = parse_value(_parameter(info), text)
    return values


def hint(info: ParameterInfo) -> str:
    """Type, unit and range of a parameter in a few words, or its choices."""
    if info.choices:
        return clean(" | ".join(info.choices), 100)
    words = [_TYPE_WORDS.get(info.type, "text")]
    if info.unit:
        words.append(f"in {clean(info.unit, 30)}")
    if info.minimum is not None and info.maximum is not None:
        words.append(f"{info.minimum:g} to {info.maximum:g}")
    elif info.minimum is not None:
        words.append(f"from {info.minimum:g}")
    elif info.maximum is not None:
        words.append(f"to {info.maximum:g}")
    return ", ".join(words)


def default_text(info: ParameterInfo) -> str:
    """What an empty field means."""
    return "default" if info.default is None else clean(info.default, 200)


def last_used(parameters: tuple[ParameterInfo, ...], jobs: Iterable[Job], stage: str) -> dict[str, str]:
    """What the newest job of the stage was given that is not the default, as texts to type; empty where there is none.

    :param jobs: the newest first.
    """
    job = next((job for job in jobs if job.stage == stage and job.parameters), None)
    if job is None:
        return {}
    given = {}
    for info in parameters:
        value = job.parameters.get(info.name)
        text = value_text(value)
        if text and value != info.default and not check_value(info, text):
            given[info.name] = text
    return given


def value_text(value: Any) -> str:
    """A value as a person types it; empty for one that nobody can type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return clean(value)
    return ""


def obstacle(
    wrong: Mapping[str, str], plan: StageInfo | None, connected: bool, readonly: bool, trouble: str = ""
) -> str:
    """Why the stage cannot be started now, in one sentence; empty when it can.

    :param wrong: messages of the fields whose value is wrong, by name.
    :param plan: the host's answer for these values; None while it has not come.
    :param trouble: why there is no answer, if that is known.
    """
    if readonly:
        return "This host is read-only: nothing can be started from here."
    if not connected:
        return "There is no connection to the host."
    for name, message in wrong.items():
        return f"{clean(name, 60)}: {message}."
    if trouble:
        return trouble
    if plan is None:
        return "Asking the host whether it can start ..."
    if plan.verdict == VERDICT_BLOCKED:
        rules = [clean(check.rule, 60) for check in plan.checks if check.verdict == VERDICT_BLOCKED]
        return f"Blocked by {', '.join(rules)}: see above." if rules else "Blocked; the host gives no reason."
    return ""


def _parameter(info: ParameterInfo) -> Parameter:
    """The catalogue's form of a parameter; one of a type that only a newer agent knows is taken as text."""
    kind = info.type if info.type in _KNOWN_TYPES else "str"
    return Parameter(
        info.name, kind, info.help, info.default, info.unit, info.minimum, info.maximum, choices=info.choices
    )
