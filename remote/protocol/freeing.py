"""Who holds the memory of the GPUs, and what came of freeing it (operations ``gpu_holders`` and ``free_gpus``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from remote.protocol.jobs import ProcessId

ENDED = "ended"  # it left after SIGTERM, or by itself
KILLED = "killed"  # it, or something below it, needed SIGKILL
SURVIVED = "survived"  # SIGKILL did not end it: it hangs in the driver
REFUSED = "refused"  # a rule protects it, and nobody named it
GONE = "gone"  # it had ended before; its pid is never signalled again
OUTCOMES = (ENDED, KILLED, SURVIVED, REFUSED, GONE)


@dataclass(frozen=True)
class GpuShare:
    """What a process holds of one GPU: its index, and bytes, None where NVML does not say."""

    gpu: int
    memory: Optional[int] = None


@dataclass(frozen=True)
class GpuHolder:
    """A process that holds GPU memory.

    :param process: its identity; None for a pid that this system does not show.
    :param main: what is ended with everything below it: the program that the process is a part of, or itself.
    :param members: processes of that program, it included.
    :param seconds: how long it has been running.
    :param job: the running job of ours that it belongs to.
    :param program: what is known of a program that we did not start, such as ``server Kimi-K2.5``.
    :param orphan: an engine or worker whose API server has died: it holds memory for nobody.
    :param refused: why it is not ended without being named, as a clause; empty when it is.
    :param force: the name that lifts the refusal: a job's id or a user; empty where nothing does.
    """

    pid: int
    shares: tuple[GpuShare, ...]
    process: Optional[ProcessId] = None
    main: Optional[ProcessId] = None
    members: tuple[ProcessId, ...] = ()
    name: Optional[str] = None
    user: Optional[str] = None
    command: Optional[str] = None
    seconds: Optional[float] = None
    job: Optional[str] = None
    program: str = ""
    orphan: bool = False
    refused: str = ""
    force: str = ""

    @property
    def memory(self) -> Optional[int]:
        """Bytes on all GPUs; None where NVML says nothing of any."""
        known = [share.memory for share in self.shares if share.memory is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class GpuMemory:
    """One GPU's memory in bytes. ``unexplained`` says what holds it where no process that can be ended does."""

    index: int
    name: Optional[str] = None
    used: Optional[int] = None
    total: Optional[int] = None
    unexplained: str = ""


@dataclass(frozen=True)
class GpuHolders:
    """Everything that holds GPU memory now, the largest first. ``problem`` says why the GPUs cannot be read."""

    holders: tuple[GpuHolder, ...] = ()
    gpus: tuple[GpuMemory, ...] = ()
    problem: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class HolderOutcome:
    """What became of one process that was asked for. ``outcome`` is one of ``OUTCOMES``."""

    pid: int
    outcome: str
    command: Optional[str] = None
    note: str = ""


@dataclass(frozen=True)
class FreedGpu:
    """One GPU before and after, in bytes. ``free`` when NVML says that nothing is used."""

    index: int
    before: Optional[int]
    after: Optional[int]
    free: bool
    explanation: str = ""


@dataclass(frozen=True)
class FreeReport:
    """The outcome by process and by GPU, complete once it is not ``running`` (operation ``free_report``).

    :param phase: what is waited for now: ``ending`` processes, or ``settling`` of the driver.
    :param seconds: from the first signal to the last reading.
    :param problem: why it could not be brought to its end.
    """

    id: str
    running: bool = False
    phase: str = ""
    processes: tuple[HolderOutcome, ...] = ()
    gpus: tuple[FreedGpu, ...] = ()
    seconds: float = 0.0
    problem: str = ""
