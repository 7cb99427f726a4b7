"""Whose a job directory is, and whether a process is its runner: what records say must not lead a signal elsewhere.

Whoever can write into the workspace can put a job directory there whose records name any process and any command. So
nothing is run or ended because of a directory that another user made, and a runner is believed to be one only when its
own command line, which the kernel keeps, says so.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from remote.protocol.jobs import ProcessId

RUNNER_NAMES = ("run_job.py", "remote.jobs.runner")
"""What a runner's command line has before the job directory: the bundle's script, or the module in a checkout."""


def is_runner_of(process: ProcessId, directory: str) -> bool:
    """Whether the command line of a living process is that of the runner of this very directory."""
    try:
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        named = len(arguments) >= 2 and os.path.basename(os.fsdecode(arguments[-2])) in RUNNER_NAMES
        return named and os.path.samefile(arguments[-1], os.fsencode(directory))
    except OSError:
        return False


def is_ours(directory: str) -> bool:
    """Whether this user made the directory.

    A network file system can show root under another id (root_squash): there, what we make now must belong to the same
    one as the directory.
    """
    owner = os.lstat(directory).st_uid
    if owner == os.geteuid():
        return True
    if os.geteuid() != 0:
        return False
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            return os.fstat(probe.fileno()).st_uid == owner
    except OSError:
        return False
