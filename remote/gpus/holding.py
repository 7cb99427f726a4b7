"""Who holds GPU memory and whether it may be ended: a pure function of readings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from remote.protocol.adopted import KIND_ORPHAN, Adopted
from remote.protocol.freeing import GpuHolder, GpuShare
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.jobs import ProcessId


@dataclass(frozen=True)
class PidFacts:
    """What /proc says of a pid that NVML names.

    :param device: it has a GPU device open; None where that cannot be seen.
    :param seconds: since its start.
    """

    process: ProcessId
    uid: int
    user: str
    name: str
    command: Optional[str] = None
    seconds: Optional[float] = None
    device: Optional[bool] = None


@dataclass(frozen=True)
class Surroundings:
    """What decides about a holder beside itself.

    :param jobs: running jobs of ours by the pids of their processes.
    :param programs: what runs without being a job of ours.
    :param user: the user id that the agent runs as.
    :param ancestors: pids of the agent and everything above it: the session that the console came in by.
    """

    jobs: Mapping[int, str] = field(default_factory=dict)
    programs: Sequence[Adopted] = ()
    user: int = 0
    ancestors: Collection[int] = ()


def holders(snapshot: GpuSnapshot, facts: Mapping[int, PidFacts], around: Surroundings) -> tuple[GpuHolder, ...]:
    """A record for each process that holds memory, the largest first.

    :param facts: by pid; a pid that is not among them cannot be seen here.
    """
    shares: dict[int, list[GpuShare]] = {}
    for gpu in snapshot.gpus:
        for process in gpu.processes or ():
            shares.setdefault(process.pid, []).append(GpuShare(gpu.index, process.memory))
    found = [_holder(pid, tuple(held), facts.get(pid), around) for pid, held in shares.items()]
    return tuple(sorted(found, key=lambda holder: (-(holder.memory or 0), holder.pid)))


def _holder(pid: int, shares: tuple[GpuShare, ...], seen: Optional[PidFacts], around: Surroundings) -> GpuHolder:
    if seen is None:
        return GpuHolder(
            pid, shares, refused="it cannot be seen here: NVML names a process of another container or pid namespace"
        )
    program = next((item for item in around.programs if seen.process in (item.main, *item.processes)), None)
    main = program.main if program is not None and program.main is not None else seen.process
    members = tuple(dict.fromkeys((main, *(program.processes if program is not None else ()), seen.process)))
    job = around.jobs.get(pid)
    refused, force = _refusal(seen, main, job, around)
    return GpuHolder(
        pid,
        shares,
        process=seen.process,
        main=main,
        members=members,
        name=seen.name,
        user=seen.user,
        command=seen.command,
        seconds=seen.seconds,
        job=job,
        program="" if program is None else f"{program.kind} {program.name}".strip(),
        orphan=(program is not None and program.kind == KIND_ORPHAN) or (program is None and _abandoned(seen)),
        refused=refused,
        force=force,
    )


def _refusal(seen: PidFacts, main: ProcessId, job: Optional[str], around: Surroundings) -> tuple[str, str]:
    """Why it is not ended without being named, and the name that lifts this."""
    if seen.device is False:
        return "it has no GPU device open: NVML names a process of another pid namespace by that number", ""
    if {seen.process.pid, main.pid} & set(around.ancestors):
        return "this connection itself runs below it", ""
    if around.user not in (0, seen.uid):
        return f"it belongs to {seen.user}, and only that user or root can end it", ""
    if job is not None:
        return f"it belongs to the running job {job}", job
    if seen.uid != around.user:
        return f"it belongs to another user, {seen.user}", seen.user
    return "", ""


def _abandoned(seen: PidFacts) -> bool:
    """An engine or worker of vLLM by its title that belongs to no program found: its server has gone."""
    return (seen.command or seen.name).startswith("VLLM::")
