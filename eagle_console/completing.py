"""What the shell completes: commands, options, profiles, stages and their parameters.

argcomplete walks the parser; it is loaded only when a shell asks. Nothing connects to a host while somebody types.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eagle_console import config
from eagle_console.config import ConfigError
from eagle_console.link.connect import DEMO
from pipeline.plan.catalog import STAGES
from pipeline.plan.stage import Stage

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "eagle-console"
_ASKED = "_ARGCOMPLETE"
"""Set by argcomplete's shell function when it wants the words."""


def asked() -> bool:
    """Whether this run is to answer a shell, and to do nothing else."""
    return _ASKED in os.environ


def shell_code(shell: str) -> str:
    """What a shell reads to complete ``eagle-console``.

    :param shell: one of ``SHELLS``.
    """
    from argcomplete.shell_integration import shellcode

    return shellcode([PROGRAM], shell=shell)


def answer(parser: argparse.ArgumentParser, hidden: Iterable[str]) -> None:
    """Writes the completions of the words in the environment for the shell, and ends the program.

    :param hidden: commands that people do not write.
    """
    import argcomplete

    argcomplete.autocomplete(parser, exclude=list(hidden), always_complete_options=False)


def complete_with(action: argparse.Action, completer: Any) -> None:
    """Says what an argument is completed with."""
    action.completer = completer  # type: ignore[attr-defined]


def hosts(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The profiles, and the two hosts that need none."""
    named = getattr(parsed_args, "config", None)
    try:
        profiles = config.load(Path(named) if named else None).hosts
    except ConfigError:
        profiles = {}
    return [*profiles, DEMO, "local"]


def stages(prefix: str, **_: Any) -> dict[str, str]:
    """The stages with what they do."""
    return {stage.name: stage.summary for stage in STAGES}


def parameters(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> dict[str, str]:
    """``name=`` of the stage's parameters, and their values where there are only a few."""
    stage = next((stage for stage in STAGES if stage.name == getattr(parsed_args, "stage", None)), None)
    if stage is None:
        return {}
    name, given, _typed = prefix.partition("=")
    if given:
        return _values(stage, name)
    return {f"{parameter.name}=": parameter.help for parameter in stage.parameters}


def _values(stage: Stage, name: str) -> dict[str, str]:
    parameter = next((parameter for parameter in stage.parameters if parameter.name == name), None)
    if parameter is None:
        return {}
    values = ("true", "false") if parameter.type == "bool" else parameter.choices
    return {f"{name}={value}": parameter.help for value in values}
