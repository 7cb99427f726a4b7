"""Who listens on a port: a health check that another server answers must not make our stage ready.

Formats: proc_pid_net(5) for ``/proc/net/tcp`` and ``tcp6``, proc_pid_fd(5) for the sockets of a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Optional

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def listens(port: int, pids: Iterable[int]) -> Optional[bool]:
    """Whether one of the processes listens on the port; None when that cannot be known (no rights, no table)."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not wanted:
        return None
    unknown = False
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                if _target(f"/proc/{pid}/fd/{name}") in wanted:
                    return True
        except FileNotFoundError:
            continue  # has ended
        except OSError:
            unknown = True
    return None if unknown else False


def _inodes(port: int) -> set[str]:
    found = set()
    for table in _TABLES:
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if len(row) > 9 and row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port:
                found.add(row[9])
    return found


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
