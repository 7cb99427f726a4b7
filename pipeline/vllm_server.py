"""A vLLM server as this process: its environment, and the step that becomes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

from pipeline import cpu
from pipeline.plan.commands import Command
from pipeline.plan.environment import Environment

_STAGE_VARIABLES = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Set for the stage so that it finds our packages; vLLM must not see them."""


def server_environment(
    command: Command, environment: Environment, directory: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the server: what was inherited, without our packages, with the command's own variables.

    :param directory: where a CPU build's metadata is written, below the job's directory.
    :raises OSError: when that cannot be written.
    """
    variables = {name: value for name, value in inherited.items() if name not in _STAGE_VARIABLES}
    if environment.cpu_only:
        variables["PYTHONPATH"] = cpu.write_stub(environment, directory)
    return {**variables, **command.env}


def become(command: Command, variables: Mapping[str, str]) -> NoReturn:
    """Replaces this process by the server, so that the job's main process is vLLM's API server.

    :raises OSError: when the command is not there or cannot be run.
    """
    os.execve(command.argv[0], command.argv, dict(variables))
