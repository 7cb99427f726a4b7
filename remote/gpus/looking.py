"""Reading what decides about a holder of GPU memory: /proc, and the kernel's messages."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from typing import Optional

from remote import procfs
from remote.adopt.finding import started_wall
from remote.gpus.holding import PidFacts
from remote.protocol.jobs import ProcessId
from remote.telemetry.processes import name_of

DEVICE_FOLDER = "EAGLE_CONSOLE_GPU_DEVICES"
"""Environment variable that names another folder than /dev for the GPU devices, for tests without a GPU."""

_DEVICES = ("nvidia", "dxg")
_XID = re.compile(r"NVRM: Xid \((?P<place>[^)]*)\): (?P<number>\d+)")
_KMSG_BYTES = 8192  # of one record, which read() gives whole


def facts(pids: Iterable[int]) -> dict[int, PidFacts]:
    """What /proc says of the pids; those that it does not show are left out."""
    found = {}
    for pid in pids:
        process, named, uid = procfs.identity(pid), name_of(pid), procfs.owner(pid)
        if process is None or named is None or uid is None:
            continue
        started = started_wall(process)
        seconds = None if started is None else max(0.0, time.time() - started)
        found[pid] = PidFacts(process, uid, named.user, named.name, named.command, seconds, has_device(pid))
    return found


def has_device(pid: int) -> Optional[bool]:
    """Whether a process has a GPU device open; None where its descriptors cannot be seen."""
    folder = os.environ.get(DEVICE_FOLDER, "/dev")
    prefixes = tuple(os.path.join(folder, name) for name in _DEVICES)
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(prefixes):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def ancestors() -> frozenset[int]:
    """The pids of this process and of all above it, the first process of the system left out."""
    found, pid = set(), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        record = procfs.stat(pid)
        pid = record.parent if record is not None else 0
    return frozenset(found)


def named(prefix: str) -> list[ProcessId]:
    """The living processes whose name begins like that."""
    boot = procfs.boot_id()
    return [
        ProcessId(record.pid, record.start_ticks, boot)
        for record in procfs.table().values()
        if record.comm.startswith(prefix) and not record.zombie
    ]


def xids() -> list[str]:
    """The GPU errors among the kernel's messages, as ``Xid 79 at PCI:0000:65:00``; none where they cannot be read."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found: dict[str, None] = {}
    try:
        while True:
            try:
                text = os.read(descriptor, _KMSG_BYTES).decode(errors="replace")
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # messages were overwritten while they were read; the next read gives the oldest left
                return list(found)
            match = _XID.search(text)
            if match:
                found[f"Xid {match['number']} at {match['place']}"] = None
    finally:
        os.close(descriptor)
