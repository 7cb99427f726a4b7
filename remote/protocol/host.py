"""Readings of the host itself (topic ``host``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Filesystem:
    """Capacity of a file system in bytes as ``statvfs`` gives it; ``free`` is what an ordinary user may still write."""

    path: str
    total: int
    free: int
    used: int
    inodes_free: Optional[int] = None
    readonly: bool = False


@dataclass(frozen=True)
class HostSample:
    """CPU in percent of all cores together, memory in bytes, load averages over 1, 5 and 15 minutes."""

    mono: float
    cpus: int
    cpu_percent: Optional[float] = None
    memory_total: Optional[int] = None
    memory_available: Optional[int] = None
    load: Optional[tuple[float, ...]] = None
    uptime: Optional[float] = None
    shm: Optional[Filesystem] = None
    workspace: Optional[Filesystem] = None
