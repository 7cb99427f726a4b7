"""Where file systems are mounted. Format: proc_pid_mountinfo(5)."""

from __future__ import annotations

import os
import re
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")


def parse_mount_points(data: bytes) -> frozenset[str]:
    """The mount points in ``/proc/self/mountinfo``: field 5, with blanks and backslashes written in octal."""
    points = set()
    for line in data.splitlines():
        fields = line.split(b" ")
        if len(fields) > 4:
            points.add(os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), fields[4])))
    return frozenset(points)


def mount_points() -> frozenset[str]:
    """The mount points of this process's mount namespace; empty where they cannot be read."""
    try:
        return parse_mount_points(Path("/proc/self/mountinfo").read_bytes())
    except OSError:
        return frozenset()
