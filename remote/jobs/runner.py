"""The runner of one job: starts the stage, watches it while nobody else does, ends it, and writes what happened.

``python -m remote.jobs.runner JOBDIR``. It is the only writer of ``started.json``, ``state.json``, ``events.jsonl``,
``samples.jsonl``, ``stage.idx`` and ``exit.json``, and holds ``lock`` while it lives. Started again in a job directory
whose runner has died, it ends what that one left behind (``remote.jobs.orphans``).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Sequence
from typing import Optional

from remote import policy, procfs
from remote.disk import housekeeping
from remote.jobs import orphans, pruning, records
from remote.jobs.ownership import is_ours
from remote.jobs.supervision import Supervision
from remote.jobs.wakeup import Wakeup
from remote.protocol.codec import to_wire
from remote.protocol.jobs import JobExit, JobSpec

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_LOCKED = 3
EXIT_ENDED = 4


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the job of the directory named on the command line and returns when nothing of it is left."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        sys.stderr.write("usage: run_job.py JOBDIR\n")
        return EXIT_USAGE
    directory = os.path.abspath(arguments[0])
    if not is_ours(directory):
        sys.stderr.write("another user made this job directory\n")
        return EXIT_USAGE
    wakeup = Wakeup()
    if not _take_lock(directory):
        sys.stderr.write("another runner holds the lock of this job\n")
        return EXIT_LOCKED
    try:
        spec = records.read_record(os.path.join(directory, records.SPEC), JobSpec)
        ended = records.read_record(os.path.join(directory, records.EXIT), JobExit)
    except records.RecordError as error:
        sys.stderr.write(f"this job cannot be run: {error}\n")
        return EXIT_USAGE
    if spec is None or ended is not None:
        sys.stderr.write("this directory holds no job that could be run\n")
        return EXIT_ENDED
    if any(os.path.lexists(os.path.join(directory, name)) for name in (records.STARTED, records.STATE)):
        orphans.end(directory, spec, wakeup)
    else:
        allowed = policy.load(_workspace(directory), readonly=False)
        housekeeping.start(allowed, prepare=True)
        Supervision(directory, spec, wakeup, pruning.of_job(spec, allowed)).run()
    return EXIT_OK


def _workspace(directory: str) -> Optional[str]:
    """The workspace that a job directory lies in, None for a directory elsewhere."""
    workspace, found, _ = os.path.dirname(directory).rpartition(f"/{records.JOBS_FOLDER}")
    return workspace if found else None


def _take_lock(directory: str) -> bool:
    """Takes the job's lock for the life of this process and writes into it who we are."""
    descriptor = os.open(
        os.path.join(directory, records.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):  # on a full disk the runner is known by started.json alone
        os.write(descriptor, json.dumps(to_wire(procfs.identity(os.getpid()))).encode("ascii"))
    return True


if __name__ == "__main__":
    sys.exit(main())
