"""What preflight checks look at: plain data about the host, the models, the run and the jobs that run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from pipeline.plan.environment import Environment
from pipeline.plan.needs import DiskNeed
from pipeline.plan.state import RunState
from remote.jobs.model_folder import DraftFacts, ModelFacts
from remote.protocol.gpu import Gpu
from remote.protocol.jobs import Job


@dataclass(frozen=True)
class WorkspaceFacts:
    """The workspace as a place to write into; ``free`` in bytes for this user, None when unknown."""

    path: Optional[str]
    exists: bool = False
    writable: bool = False
    free: Optional[int] = None


@dataclass(frozen=True)
class HostFacts:
    """What the machine gives. None where it does not say.

    :param gpus: real GPUs as they were last read; None where there is no NVML, or they are simulated.
    :param driver: version of the NVIDIA driver.
    :param memory_total, memory_available: bytes of the host's memory.
    :param shm_free: bytes of ``/dev/shm``.
    :param open_files: how many files a process may open at most (the hard limit).
    :param cache, cache_free: where compiled kernels are kept, and the bytes free there.
    :param skew: seconds by which this host's clock is ahead of the console's.
    :param cores: that a process may use.
    :param bases: Python interpreters that an ML environment can be made with, the best first.
    """

    gpus: Optional[tuple[Gpu, ...]] = None
    driver: Optional[str] = None
    memory_total: Optional[int] = None
    memory_available: Optional[int] = None
    shm_free: Optional[int] = None
    open_files: Optional[int] = None
    cache: str = ""
    cache_free: Optional[int] = None
    skew: Optional[float] = None
    cores: int = 1
    bases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that the checks of one launch look at.

    :param parameters: of the stage, resolved.
    :param python: what was found at the profile's interpreter, None where the profile names none.
    :param verifier: None where neither profile nor request name one.
    :param draft: of a stage that serves one; None where it has none or its folder is not there.
    :param port: of the server to start, None for a stage without one; ``port_problem`` is why it cannot be bound.
    :param port_job: a living job of ours with the same port.
    :param simulated: a recorded run is replayed instead, since the ML environment is not there.
    :param run: what is there of the run that the parameters name.
    :param living: the jobs that have not ended.
    :param growth: what each of these will still write, by its id.
    """

    workspace: WorkspaceFacts
    python: Optional[Environment] = None
    verifier: Optional[ModelFacts] = None
    port: Optional[int] = None
    port_problem: str = ""
    port_job: Optional[Job] = None
    readonly_reason: str = ""
    simulated: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    draft: Optional[DraftFacts] = None
    run: RunState = field(default_factory=RunState)
    host: HostFacts = field(default_factory=HostFacts)
    living: tuple[Job, ...] = ()
    growth: Mapping[str, DiskNeed] = field(default_factory=dict)

    @property
    def cpu_only(self) -> bool:
        """The ML environment is for a CPU."""
        return self.python is not None and self.python.cpu_only
