"""The kernel's word about processes that it killed for memory. Pure.

Its lines in the text of ``dmesg`` or of a journal, its records (``Documentation/ABI/testing/dev-kmsg``), and the count
of kills that every control group keeps (``memory.events`` of version 2, ``memory.oom_control`` of version 1).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Optional

_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory|oom_reaper): (?:Killed|Kill|reaped) process (?P<pid>\d+)"
    r" \(?(?P<name>[^),]*)"
)
_OURS = ("VLLM", "vllm", "RayWorker", "ray::")
_RECORD = re.compile(r"\d+,\d+,\d+,[^;]*;(?P<message>.*)")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kill(lines: Iterable[str], pids: Container[int] = ()) -> str:
    """The last line that says that one of these processes, or one with a name of vLLM's, was killed; or empty.

    A container's process has another id outside, so the name counts too.
    """
    found = ""
    for line in lines:
        match = _KILLED.search(line)
        if match and (int(match["pid"]) in pids or match["name"].startswith(_OURS)):
            found = line.strip()
    return found


def message(record: str) -> str:
    """The text of a record of ``/dev/kmsg``; empty for the lines of its properties."""
    match = _RECORD.match(record)
    return match["message"] if match else ""


def oom_files(cgroups: str, mount: str) -> tuple[str, ...]:
    """Files that may hold the count of kills of a process's control group, the likeliest first.

    :param cgroups: text of its ``/proc/PID/cgroup``. In a container the mount shows the container's group as the root.
    """
    found = []
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found += [f"{mount}/memory{path.rstrip('/')}/memory.oom_control", f"{mount}/memory/memory.oom_control"]
        elif number == "0" and not controllers:
            found += [f"{mount}{path.rstrip('/')}/memory.events", f"{mount}/memory.events"]
    return tuple(dict.fromkeys(found))


def parse_oom_count(text: str) -> Optional[int]:
    """How many processes of the group the kernel has killed for memory, None where the text does not say."""
    match = _COUNT.search(text)
    return int(match[1]) if match else None


def counted(kills: int) -> str:
    """The kernel's count in words."""
    return f"oom_kill of the control group grew by {kills}"
