"""Looks at the host for the preflight checks: the only part of them that reads anything. Changes nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan import needs, sets
from pipeline.plan.environment import Environment
from pipeline.plan.layout import Run
from pipeline.plan.needs import DiskNeed
from pipeline.plan.stage import Stage
from pipeline.plan.state import RunState
from remote.jobs import model_folder, run_state
from remote.jobs.facts import Facts, HostFacts, WorkspaceFacts
from remote.jobs.model_folder import DraftFacts, ModelFacts, ModelFolders
from remote.policy import Policy
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import KIND_TASK, Job

BASE_PYTHONS = ("python3.11", "python3.12", "python3.13")
"""What an ML environment is made with: 3.11 first, with which the sets were resolved."""

_DRIVER = "/proc/driver/nvidia/version"


@dataclass(frozen=True)
class Readings:
    """The agent's own readings of the host; None where it has none."""

    gpus: Optional[GpuSnapshot] = None
    host: Optional[HostSample] = None


class Gatherer:
    """The facts for the stages of one request: what several of them need is looked at once.

    :param folders: knows which weight files are whole.
    :param readings: of GPUs and memory.
    :param wall: the console's clock when it asked, None where it did not say.
    """

    def __init__(
        self,
        policy: Policy,
        living: tuple[Job, ...],
        folders: ModelFolders,
        readings: Readings,
        wall: Optional[float] = None,
    ) -> None:
        self._policy, self._living, self._folders = policy, living, folders
        self._models: dict[str, ModelFacts] = {}
        self._runs: dict[str, RunState] = {}
        self._host = _host(readings, wall)
        self._workspace = _workspace(policy.workspace)

    def facts(
        self, stage: Stage, environment: Optional[Environment], parameters: Mapping[str, Any], simulated: bool
    ) -> Facts:
        """What the checks of one stage look at.

        :param parameters: the stage's resolved parameters.
        """
        port, verifier = parameters.get("port"), parameters.get("verifier")
        return Facts(
            workspace=self._workspace,
            python=environment,
            verifier=self._model(verifier) if verifier else None,
            port=port,
            port_problem=_port_problem(port) if port else "",
            port_job=next((job for job in self._living if port and job.parameters.get("port") == port), None),
            readonly_reason=self._policy.readonly_reason if self._policy.readonly else "",
            simulated=simulated,
            parameters=parameters,
            draft=self._draft(stage, parameters),
            run=self._run(parameters.get("run")),
            host=self._host,
            living=self._living,
            growth=self._growth(environment),
        )

    def _model(self, path: str) -> ModelFacts:
        if path not in self._models:
            self._models[path] = self._folders.model(path)
        return self._models[path]

    def _run(self, name: Optional[str]) -> RunState:
        if not name or self._policy.workspace is None:
            return RunState()
        if name not in self._runs:
            self._runs[name] = run_state.read(Run(self._policy.workspace, name))
        return self._runs[name]

    def _draft(self, stage: Stage, parameters: Mapping[str, Any]) -> Optional[DraftFacts]:
        path = parameters.get("draft")
        if stage.name == "bench" and not path and self._policy.workspace:
            path = str(Run(self._policy.workspace, parameters["run"]).draft)
        return model_folder.draft(path) if path and os.path.isdir(path) else None

    def _growth(self, environment: Optional[Environment]) -> dict[str, DiskNeed]:
        found = {}
        for job in self._living:
            if job.kind != KIND_TASK or job.simulated:
                continue
            verifier = job.parameters.get("verifier")
            config = self._model(verifier).config if verifier else None
            cpu_only = environment is not None and environment.cpu_only
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a job of another version of the pipeline
                found[job.id] = needs.disk(
                    job.stage, job.parameters, config, self._run(job.parameters.get("run")), cpu_only
                )
        return found


def _workspace(path: Optional[str]) -> WorkspaceFacts:
    if path is None or not os.path.isdir(path):
        return WorkspaceFacts(path)
    return WorkspaceFacts(path, True, os.access(path, os.W_OK | os.X_OK), _free(path))


def _host(readings: Readings, wall: Optional[float]) -> HostFacts:
    snapshot, host = readings.gpus, readings.host
    real = snapshot is not None and not snapshot.simulated and bool(snapshot.gpus)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return HostFacts(
        gpus=snapshot.gpus if snapshot is not None and real else None,
        driver=_driver(snapshot),
        memory_total=host.memory_total if host else None,
        memory_available=host.memory_available if host else None,
        shm_free=host.shm.free if host and host.shm else None,
        open_files=_open_files(),
        cache=cache,
        cache_free=_free(cache),
        skew=None if wall is None else time.time() - wall,
        cores=_read(lambda: len(os.sched_getaffinity(0))) or 1,
        bases=bases(),
    )


def bases() -> tuple[str, ...]:
    """The interpreters that an ML environment can be made with, the best first; ours where it is new enough."""
    found = [path for name in BASE_PYTHONS if (path := shutil.which(name))]
    ours = [sys.executable] if sys.executable and sys.version_info >= (3, 11) else []
    return tuple(dict.fromkeys([*found, *ours]))


def _driver(snapshot: Optional[GpuSnapshot]) -> Optional[str]:
    """The driver's version, by NVML or by the kernel module's own file."""
    if snapshot is not None and not snapshot.simulated and snapshot.driver_version:
        return snapshot.driver_version
    with contextlib.suppress(OSError), open(_DRIVER) as file:
        return sets.parse_driver(file.read())
    return None


def _free(path: str) -> Optional[int]:
    """Bytes free for this user in the nearest folder above that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    with contextlib.suppress(OSError):
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize
    return None


def _open_files() -> Optional[int]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _read(look: Callable[[], int]) -> Optional[int]:
    try:
        return look()
    except (OSError, AttributeError):
        return None


def _port_problem(port: int) -> str:
    """Why the port of the loopback interface cannot be bound, empty when it can.

    SO_REUSEADDR as servers set it: connections of an earlier server in TIME_WAIT are no obstacle.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return ""
