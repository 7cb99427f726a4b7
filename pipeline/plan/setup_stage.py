"""The stage that makes the ML environment, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pipeline.plan import sets
from pipeline.plan.commands import Command
from pipeline.plan.stage import TASK, Parameter, Stage

ENVIRONMENTS = "environments"
"""Below the workspace: a folder for each environment that was made."""

LINK = "ml"
"""Below the workspace: points to the environment that is complete and in use."""

SETUP = Stage(
    name="setup",
    kind=TASK,
    summary="makes the pinned ML environment of this host, or adopts one: proven by importing what the stages need",
    watcher="events",
    grace_seconds=10.0,
    stop_costs="the package that is being installed; the rest is kept",
    outputs=(f"{ENVIRONMENTS}/SET-HASH/", f"{LINK} -> the complete one"),
    resources="disk: 3 to 14 GB; the package index that pip on the host is set to",
    resume="goes on with the packages that are missing; an environment comes into use only when it is proven",
    host_python=True,
    parameters=(
        Parameter("python", "path", "adopt this environment's interpreter instead of making one"),
        Parameter(
            "set",
            "str",
            "cpu; cuda12 for drivers below 580; cuda13; auto chooses by the driver",
            sets.AUTO,
            choices=(sets.AUTO, *sets.SETS),
        ),
        Parameter("base", "path", "the Python that it is made with; python3.11, 3.12 or 3.13 of the PATH if empty"),
        Parameter("pip_options", "str", "more options for pip install, as on a command line", shapes_result=False),
    ),
)


def shown(parameters: Mapping[str, Any], workspace: str) -> tuple[Command, ...]:
    """What the stage runs, with the set in capitals where only the host's driver tells it."""
    if parameters["python"]:
        return (Command((parameters["python"], "-c", f"import {', '.join(sets.MODULES)}")),)
    base = parameters["base"] or "PYTHON"
    if parameters["set"] == sets.AUTO:
        return (Command((base, "-m", "venv", f"{workspace}/{ENVIRONMENTS}/SET-HASH")),)
    pinned = sets.SETS[parameters["set"]]
    folder = os.path.join(workspace, ENVIRONMENTS, pinned.folder)
    return sets.commands(pinned, base, folder, parameters["pip_options"])
