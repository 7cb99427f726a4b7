"""The processes that hold GPU memory: one row a pid, named from /proc, joined with our jobs."""

from __future__ import annotations

import dataclasses
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

from remote import procfs
from remote.protocol.gpu import Gpu, GpuProcess, GpuSnapshot

Holder = tuple[int, Optional[int]]
"""A pid and the bytes that it holds, None where NVML does not say."""

_COMMAND_CHARACTERS = 200  # enough to tell processes apart; hundreds of them must fit into one frame
_COMMAND_ROUNDS = 5  # a process may change its title while it starts, so its command is read again now and then


@dataclass(frozen=True)
class ProcessName:
    """Who a pid is, as /proc shows it."""

    name: str
    user: str
    command: Optional[str]


def merge_holders(compute: Iterable[Holder], graphics: Iterable[Holder]) -> tuple[Holder, ...]:
    """One row a pid, largest first. A pid has one compute entry a MIG instance: those add up. NVML reports a process
    that computes and draws in both lists with the same memory: that counts once."""
    held: dict[int, Optional[int]] = {}
    for pid, memory in compute:
        held[pid] = _plus(held.get(pid), memory)
    for pid, memory in graphics:
        held[pid] = max((held.get(pid), memory), key=lambda size: -1 if size is None else size)
    return tuple(sorted(held.items(), key=lambda row: (-(row[1] or 0), row[0])))


def label_jobs(snapshot: GpuSnapshot, jobs: Mapping[int, str]) -> GpuSnapshot:
    """The snapshot with ``job`` set on every process whose pid is in ``jobs`` (pid to job id)."""

    def label(gpu: Gpu) -> Gpu:
        if not gpu.processes or not any(process.pid in jobs for process in gpu.processes):
            return gpu
        rows = tuple(dataclasses.replace(process, job=jobs.get(process.pid)) for process in gpu.processes)
        return dataclasses.replace(gpu, processes=rows)

    return dataclasses.replace(snapshot, gpus=tuple(label(gpu) for gpu in snapshot.gpus))


class ProcessNames:
    """Names of pids. ``refresh`` reads /proc and asks for user names, both of which can hang, so it has its own thread.

    A pid that /proc does not show (NVML in a container may give the host's pids) has no name.
    """

    def __init__(self) -> None:
        self.wanted: frozenset[int] = frozenset()
        self._known: dict[int, tuple[int, Optional[ProcessName]]] = {}
        self._rounds = 0

    def get(self, pid: int) -> Optional[ProcessName]:
        """The name of a pid as of the last refresh."""
        return self._known.get(pid, (0, None))[1]

    def complete(self) -> bool:
        """Whether every wanted pid has been looked up."""
        return self.wanted <= self._known.keys()

    def refresh(self) -> None:
        """Looks up the wanted pids and forgets the others."""
        again = self._rounds % _COMMAND_ROUNDS == 0
        self._rounds += 1
        known: dict[int, tuple[int, Optional[ProcessName]]] = {}
        for pid in self.wanted:
            before = self._known.get(pid)
            record = procfs.stat(pid)
            if record is None:
                known[pid] = (0, None)
            elif before and before[0] == record.start_ticks and not again:
                known[pid] = before
            else:
                known[pid] = (record.start_ticks, _describe(pid, record.comm))
        self._known = known


def name_of(pid: int) -> Optional[ProcessName]:
    """The name of a process of this host, read at once; None when /proc does not show it."""
    record = procfs.stat(pid)
    return None if record is None else _describe(pid, record.comm)


def process_row(pid: int, memory: Optional[int], name: Optional[ProcessName]) -> GpuProcess:
    """The wire record of one holder."""
    if name is None:
        return GpuProcess(pid, memory)
    return GpuProcess(pid, memory, name.name, name.user, name.command)


def _describe(pid: int, comm: str) -> ProcessName:
    owner = procfs.owner(pid)
    command = procfs.command_line(pid)
    return ProcessName(comm, "" if owner is None else _user(owner), command[:_COMMAND_CHARACTERS] if command else None)


@lru_cache(maxsize=1024)
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _plus(first: Optional[int], second: Optional[int]) -> Optional[int]:
    return second if first is None else first + (second or 0)
