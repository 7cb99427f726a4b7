"""The kernel's word about processes that it killed for memory, in the text of ``dmesg`` or of a journal."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory|oom_reaper): (?:Killed|Kill|reaped) process (?P<pid>\d+)"
    r" \(?(?P<name>[^),]*)"
)
_OURS = ("VLLM", "vllm", "RayWorker", "ray::")


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
