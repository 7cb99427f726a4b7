"""Jobs whose directory was removed while they ran: nothing is recorded of them, but their runners live on.

A runner's command line, which the kernel keeps, names the directory. So such a job is found by its id or stage, and
SIGTERM to its runner is a request to stop it, as it is for any job.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Optional

from pipeline.plan import catalog
from remote import procfs
from remote.jobs import records
from remote.jobs.ownership import RUNNER_NAMES
from remote.protocol import jobs
from remote.protocol.jobs import Job, ProcessId

NOTE = "its folder was removed on the host: nothing is recorded of it, a stop ends it all the same"
ENDED_NOTE = "it has ended after its folder was removed: how is not recorded"


class Strays:
    """The jobs of a job folder that have a runner of this user and no directory."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._known: dict[str, ProcessId] = {}

    def find(self, name: str) -> Optional[Job]:
        """The job of that id, also when it has ended since it was found, or the newest living one of that stage."""
        living = self._living()
        self._known.update(living)
        found = [job_id for job_id in self._known if name == job_id or (name == _stage(job_id) and job_id in living)]
        return self._job(max(found, key=_age)) if found else None

    def runner(self, job_id: str) -> Optional[ProcessId]:
        """The runner of a job that was found."""
        return self._known.get(job_id)

    def _living(self) -> dict[str, ProcessId]:
        found = {}
        for record in procfs.table().values():
            job_id = "" if record.zombie else self._job_id(record.pid)
            if job_id:
                found[job_id] = ProcessId(record.pid, record.start_ticks, procfs.boot_id())
        return found

    def _job_id(self, pid: int) -> str:
        """The id of the removed job directory whose runner a process is, else empty."""
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                return ""
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            return ""
        if len(arguments) < 2 or os.path.basename(os.fsdecode(arguments[-2])) not in RUNNER_NAMES:
            return ""
        folder, job_id = os.path.split(os.fsdecode(arguments[-1]))
        here = records.JOB_ID.match(job_id) and os.path.realpath(folder) == self._folder
        return job_id if here and not os.path.lexists(os.path.join(folder, job_id)) else ""

    def _job(self, job_id: str) -> Job:
        runner = self._known[job_id]
        lives = procfs.alive(runner)
        kinds = {stage.name: stage.kind for stage in catalog.STAGES}
        return Job(
            id=job_id,
            stage=_stage(job_id),
            kind=kinds.get(_stage(job_id), jobs.KIND_TASK),
            state=jobs.RUNNING if lives else jobs.GONE,
            created=_created(job_id),
            host=socket.gethostname(),
            parameters={},
            pids=tuple(record.pid for record in procfs.descendants([runner.pid])) if lives else (),
            note=NOTE if lives else ENDED_NOTE,
        )


def _stage(job_id: str) -> str:
    return job_id.split("-")[0]


def _age(job_id: str) -> str:
    return job_id.split("-", 1)[1]


def _created(job_id: str) -> float:
    """From the id, which carries the host's local time."""
    return time.mktime(time.strptime("-".join(job_id.split("-")[1:3]), "%Y%m%d-%H%M%S"))
