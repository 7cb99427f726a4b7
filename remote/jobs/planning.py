"""From a launch request to what would run: parameters, command, checks. Reads the host, starts and changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan import catalog, commands, environment, made, stage_commands
from pipeline.plan.environment import Environment
from pipeline.plan.stage import Stage, resolve
from remote.jobs import preflight
from remote.jobs.gathering import Gatherer
from remote.policy import Policy
from remote.protocol.errors import BAD_ARGUMENT, NOT_FOUND, RequestError
from remote.protocol.stages import Check, LaunchRequest, ParameterInfo, StageContext, StageInfo

REPLAY_VARIABLE = "EAGLE_CONSOLE_REPLAY"
"""Set by the embedded host for its agent: a folder with ``replay.py`` and recordings ``<stage>.jsonl``."""


@dataclass(frozen=True)
class Plan:
    """A stage as it would run.

    :param command: what the stage does in the end, for people; the job's own ``argv`` comes from ``job_argv``.
    :param replay: argv of the replay that stands in for the stage, None where the stage is real.
    """

    stage: Stage
    parameters: dict[str, Any]
    python: Optional[Environment]
    command: commands.Command
    checks: tuple[Check, ...]
    replay: Optional[tuple[str, ...]] = None

    def job_argv(self, spec_path: str) -> tuple[str, ...]:
        """The argv that the runner starts."""
        if self.replay is not None:
            return self.replay
        python = self.python.python if self.python else "python"
        if self.stage.host_python:
            python = sys.executable
        return (python, "-m", "pipeline.stages", self.stage.name, spec_path)

    def job_env(self, library: str) -> dict[str, str]:
        """The variables that the runner adds for the stage.

        :param library: the folder that holds the packages ``pipeline`` and ``remote``.
        """
        if self.replay is not None:
            return {}
        # A folder called pipeline or remote in the workspace must not be imported instead of ours.
        return {"PYTHONPATH": library, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}

    @property
    def info(self) -> StageInfo:
        """The plan as the console gets it."""
        return StageInfo(
            name=self.stage.name,
            kind=self.stage.kind,
            summary=self.stage.summary,
            verdict=preflight.verdict(self.checks),
            checks=self.checks,
            parameters=tuple(
                ParameterInfo(
                    parameter.name,
                    parameter.type,
                    parameter.help,
                    self.parameters[parameter.name],
                    parameter.unit,
                    parameter.minimum,
                    parameter.maximum,
                    parameter.choices,
                )
                for parameter in self.stage.parameters
            ),
            command_line=self.command.line,
            simulated=self.replay is not None,
        )


def plan(request: LaunchRequest, policy: Policy, gatherer: Gatherer, variables: Mapping[str, str]) -> Plan:
    """What the request would start.

    :param gatherer: looks at the host for the checks.
    :param variables: the agent's environment, for the mark of the embedded host.
    :raises RequestError: ``not_found`` for an unknown stage, ``bad_argument`` for a wrong parameter.
    """
    try:
        stage = catalog.stage_named(request.stage)
    except KeyError as error:
        raise RequestError(NOT_FOUND, str(error.args[0])) from None
    python = request.context.python or made_environment(policy.workspace)
    found = environment.inspect(python) if python else None
    try:
        parameters = resolve(stage, request.parameters, _profile(request.context))
        command = stage_commands.command(
            stage.name, parameters, found or Environment("python", exists=False), policy.workspace or "WORKSPACE"
        )
    except ValueError as error:
        raise RequestError(BAD_ARGUMENT, str(error)) from None
    replay = None if found is not None and found.exists else _replay(stage, parameters, variables)
    known = gatherer.facts(stage, found, parameters, simulated=replay is not None)
    return Plan(stage, parameters, found, command, preflight.checks(stage, known), replay)


def made_environment(workspace: Optional[str]) -> Optional[str]:
    """The interpreter of the environment that the stage ``setup`` has made or adopted; None where there is none."""
    return made.read(workspace) if workspace else None


def _profile(context: StageContext) -> dict[str, Any]:
    return {"verifier": context.verifier, "tensor_parallel": context.tensor_parallel}


def _replay(stage: Stage, parameters: Mapping[str, Any], variables: Mapping[str, str]) -> Optional[tuple[str, ...]]:
    folder = variables.get(REPLAY_VARIABLE)
    recording = os.path.join(folder, f"{stage.name}.jsonl") if folder else ""
    if not folder or not os.path.isfile(recording):
        return None
    argv = (sys.executable, "-I", os.path.join(folder, "replay.py"), recording)
    port = parameters.get("port")
    return (*argv, "--port", str(port)) if port else argv
