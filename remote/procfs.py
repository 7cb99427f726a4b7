"""Processes as the kernel shows them under /proc: identity, ancestry, descendants.

A process is its boot id, pid and start time (field 22 of ``/proc/PID/stat``), never a pid alone: pids are reused
within minutes on a busy host. Formats: proc_pid_stat(5).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Optional

from remote.protocol.jobs import ProcessId


@dataclass(frozen=True)
class Stat:
    """The fields of ``/proc/PID/stat`` that we use; ``start_ticks`` is in clock ticks after boot."""

    pid: int
    comm: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def zombie(self) -> bool:
        """Ended but not yet reaped: a process that is gone for every purpose of ours."""
        return self.state in ("Z", "X", "x")


@cache
def boot_id() -> str:
    """The random id of this boot of the kernel."""
    return _first_line("/proc/sys/kernel/random/boot_id") or "unknown-boot"


@cache
def machine_id() -> str:
    """The id of this machine, from /etc/machine-id; the host name where there is none (minimal containers)."""
    return _first_line("/etc/machine-id") or f"host:{socket.gethostname()}"


def parse_stat(text: str) -> Stat:
    """The record of one ``/proc/PID/stat``. The command is between the first ``(`` and the last ``)``.

    :raises ValueError: when the text is not such a record.
    """
    opening, closing = text.index("("), text.rindex(")")
    rest = text[closing + 1 :].split()
    return Stat(
        pid=int(text[:opening]),
        comm=text[opening + 1 : closing],
        state=rest[0],
        parent=int(rest[1]),
        group=int(rest[2]),
        session=int(rest[3]),
        start_ticks=int(rest[19]),
    )


def stat(pid: int) -> Optional[Stat]:
    """The stat record of a process, None when there is no such process or it cannot be read."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (OSError, ValueError, IndexError):
        return None


def identity(pid: int) -> Optional[ProcessId]:
    """The identity of a running process, None when it is gone."""
    record = stat(pid)
    return ProcessId(pid, record.start_ticks, boot_id()) if record else None


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    if process.boot_id != boot_id():
        return False
    record = stat(process.pid)
    return record is not None and record.start_ticks == process.start_ticks and not record.zombie


def table() -> dict[int, Stat]:
    """The stat records of all processes that can be seen, by pid."""
    records = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            record = stat(int(name))
            if record:
                records[record.pid] = record
    return records


def descendants(roots: Iterable[int], processes: Optional[dict[int, Stat]] = None) -> list[Stat]:
    """All living processes below the given pids, the roots themselves left out, parents before children."""
    records = table() if processes is None else processes
    children: dict[int, list[Stat]] = {}
    for record in records.values():
        children.setdefault(record.parent, []).append(record)
    found: list[Stat] = []
    queue = list(roots)
    seen = set(queue)
    while queue:
        for record in children.get(queue.pop(0), []):
            if record.pid not in seen:
                seen.add(record.pid)
                queue.append(record.pid)
                found.append(record)
    return [record for record in found if not record.zombie]


def command_line(pid: int) -> Optional[str]:
    """The command line of a process with spaces between its arguments, None when it cannot be read."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def owner(pid: int) -> Optional[int]:
    """The user id that owns a process, None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""
