"""What a stage's process tree uses: memory, CPU time and bytes read, for ``samples.jsonl``."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class TreeSample:
    """The tree at one moment.

    :param rss: bytes resident, summed; a page that processes share counts in each of them.
    :param cpu_seconds: used by the living processes and by the ended ones that were waited for.
    :param read_bytes: fetched from storage by the same; None where the kernel does not say.
    """

    wall: float
    processes: int
    rss: int
    cpu_seconds: float
    read_bytes: Optional[int]


def sample(pids: Iterable[int]) -> TreeSample:
    """Reads the processes from /proc, called by their common ancestor; one that has ended counts nothing."""
    processes, rss, read_bytes = 0, 0, None
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = reaped.ru_utime + reaped.ru_stime
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            rss += int(fields[21]) * _PAGE
            cpu += sum(int(field) for field in fields[11:15]) / _TICKS  # own and waited-for children, user and system
        except (OSError, ValueError, IndexError):
            continue
        processes += 1
        read = _read_bytes(pid)
        if read is not None:
            read_bytes = (read_bytes or 0) + read
    return TreeSample(time.time(), processes, rss, round(cpu, 2), read_bytes)


def _read_bytes(pid: int) -> Optional[int]:
    try:
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "read_bytes":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
