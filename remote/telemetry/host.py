"""The host itself: CPU, memory, load, shared memory and the workspace's file system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Optional

from remote.protocol.host import Filesystem, HostSample
from remote.telemetry import procstat
from remote.telemetry.counters import Counters, cpu_percent
from remote.telemetry.lanes import Crew, Probe, ThreadBudget

_SHM = "/dev/shm"
_STATVFS_SECONDS = 0.05  # a healthy statvfs takes microseconds; a dead network file system never answers
_KEEP_SECONDS = 5.0
_CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def psutil_available() -> bool:
    """Whether psutil can be imported here; without it /proc is read directly."""
    return _psutil() is not None


def filesystem(path: str) -> Optional[Filesystem]:
    """The capacity of the file system that holds ``path``, None when it cannot be asked. May hang on a network file
    system whose server is gone."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    return Filesystem(
        path=path,
        total=stats.f_blocks * stats.f_frsize,
        free=stats.f_bavail * stats.f_frsize,
        used=(stats.f_blocks - stats.f_bfree) * stats.f_frsize,
        inodes_free=stats.f_favail if stats.f_files else None,  # btrfs and others do not count inodes
        readonly=bool(stats.f_flag & os.ST_RDONLY),
    )


class HostSampler:
    """Reads the host when asked. A file system that does not answer leaves its field None and delays nobody."""

    def __init__(self, workspace: Optional[str]) -> None:
        self._read = _reader()
        self._before: Optional[Counters] = None
        self._workspace = Probe("statvfs", lambda: filesystem(workspace)) if workspace else None
        self._asker = Crew("statvfs", [self._workspace], ThreadBudget(1)) if self._workspace else None

    def sample(self) -> HostSample:
        """One reading. CPU percent covers the time since the sample before; it is None on the first one."""
        try:
            counters: Optional[Counters] = self._read()
        except (OSError, ValueError):
            counters = None
        percent = cpu_percent(self._before, counters) if counters else None
        self._before = counters
        return HostSample(
            mono=time.monotonic(),
            cpus=os.cpu_count() or 1,
            cpu_percent=percent,
            memory_total=counters.memory_total if counters else None,
            memory_available=counters.memory_available if counters else None,
            load=_load(),
            uptime=counters.uptime if counters else None,
            shm=filesystem(_SHM),
            workspace=self._workspace_filesystem(),
        )

    def close(self) -> None:
        """Ends the thread that asks the workspace's file system."""
        if self._asker:
            self._asker.close()

    def _workspace_filesystem(self) -> Optional[Filesystem]:
        if self._workspace is None or self._asker is None:
            return None
        asked = time.monotonic()
        self._asker.start_round()
        while not self._asker.settled(time.monotonic()) and time.monotonic() < asked + _STATVFS_SECONDS:
            time.sleep(0.001)
        outcome = self._workspace.outcome
        answer: Optional[Filesystem] = self._workspace.value
        return answer if outcome and asked - outcome.mono <= _KEEP_SECONDS else None


def _psutil() -> Optional[ModuleType]:
    try:
        import psutil
    except ImportError:
        return None
    return psutil


def _reader() -> Callable[[], Counters]:
    psutil = _psutil()
    if psutil is None:
        return procstat.read

    def read() -> Counters:
        times = psutil.cpu_times()
        total = sum(getattr(times, field, 0.0) for field in _CPU_FIELDS)
        memory = psutil.virtual_memory()
        idle = times.idle + getattr(times, "iowait", 0.0)
        return Counters(total - idle, total, memory.total, memory.available, time.clock_gettime(time.CLOCK_BOOTTIME))

    return read


def _load() -> Optional[tuple[float, ...]]:
    try:
        return os.getloadavg()
    except OSError:
        return None
