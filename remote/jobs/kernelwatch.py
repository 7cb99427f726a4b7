"""Whether the kernel killed a process of a job for memory: its log and its count, both from the job's start on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container
from typing import Optional

from remote.watch import kernel

KMSG = "/dev/kmsg"
"""One record a read; opened at the job's start and set to its end, so that nothing older is ever read."""

MAX_RECORDS = 100_000
_RECORD_BYTES = 8192
_CGROUPS = "/sys/fs/cgroup"


class KernelWatch:
    """Begins when it is made. Everything is optional: a kernel's log needs rights that a user may lack.

    :param log: the kernel's log. :param cgroups: where control groups are mounted.
    """

    def __init__(self, log: Optional[str] = None, cgroups: str = _CGROUPS) -> None:
        self._descriptor: Optional[int] = None
        self._counts = kernel.oom_files(_text("/proc/self/cgroup"), cgroups)
        self._killed = self._count()
        with contextlib.suppress(OSError):
            self._descriptor = os.open(KMSG if log is None else log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def word(self, pids: Container[int]) -> Optional[str]:
        """What the kernel has said about killing one of these processes for memory.

        :return: its own line, or a sentence made of its count; empty where it has killed none, None where neither the
            log nor a count can be read.
        """
        records = self._records()
        line = kernel.oom_kill(map(kernel.message, records), pids) if records is not None else ""
        now = self._count()
        if not line and now is not None and self._killed is not None and now > self._killed:
            return kernel.counted(now - self._killed)
        return line if records is not None or now is not None else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _records(self) -> Optional[list[str]]:
        if self._descriptor is None:
            return None
        found: list[str] = []
        while len(found) < MAX_RECORDS:
            try:
                data = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # the records at our place are overwritten: the next read gives the oldest that is left
            except BlockingIOError:
                return found
            except OSError:
                return found or None
            if not data:
                return found
            found += data.decode("utf-8", "replace").splitlines()
        return found

    def _count(self) -> Optional[int]:
        counts = [kernel.parse_oom_count(_text(path)) for path in self._counts]
        return next((count for count in counts if count is not None), None)


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(_RECORD_BYTES)
    except OSError:
        return ""
