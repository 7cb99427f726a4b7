"""Who listens on a port: a health check that another server answers must not make our stage ready.

Formats: proc_pid_net(5) for ``/proc/net/tcp`` and ``tcp6``, proc_pid_fd(5) for the sockets of a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


@dataclass(frozen=True)
class Listener:
    """A listening socket: its port, its address as the kernel's table writes it (hexadecimal), owner and inode."""

    port: int
    address: str
    uid: int
    inode: str


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


def listeners() -> Iterator[Listener]:
    """The sockets that listen in this network namespace."""
    for table in _TABLES:
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if len(row) > 9 and row[3] == _LISTEN:
                address, _, port = row[1].rpartition(":")
                yield Listener(int(port, 16), address, int(row[7]), row[9])


def sockets_of(pid: int) -> Optional[set[str]]:
    """The inodes of a process's sockets; None when it is gone or they cannot be seen."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    targets = [_target(f"/proc/{pid}/fd/{name}") for name in names]
    return {target[len("socket:[") : -1] for target in targets if target.startswith("socket:[")}


def _inodes(port: int) -> set[str]:
    return {listener.inode for listener in listeners() if listener.port == port}


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
