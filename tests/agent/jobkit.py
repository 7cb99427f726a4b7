"""Jobs for tests: a directory with a spec whose stage is a few lines of Python, run by the real runner."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from remote import procfs
from remote.jobs import detaching, records
from remote.jobs.detaching import Bundle
from remote.jobs.launcher import Launcher
from remote.jobs.store import JobStore
from remote.policy import Policy
from remote.protocol import jobs
from remote.protocol.jobs import Job, JobSpec, JobState, ProcessId

ROOT = str(Path(__file__).parents[2])

PRELUDE = """
import os, signal, sys, time

def note(name):
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    line = "%s %d %s\\n" % (name, os.getpid(), fields[19])
    descriptor = os.open("noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)

def sleep_for_ever():
    while True:
        time.sleep(60)

def child(name, *steps):
    if os.fork() == 0:
        for step in steps:
            step()
        note(name)
        sleep_for_ever()

def ignore_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def fork_away():
    if os.fork():
        os._exit(0)
"""


def until(condition: Callable[[], Any], seconds: float = 45.0) -> Any:
    """The first true value of a condition that is asked again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("it did not come true in time")


class Bench:
    """A workspace with one job in it.

    :param python: the interpreter of the runner.
    """

    def __init__(self, workspace: Path, python: str = sys.executable) -> None:
        self.workspace = workspace
        self.store = JobStore(str(workspace))
        self.launcher = Launcher(self.store, Policy(False, "", (str(workspace),), str(workspace)), None)
        self.bundle = Bundle(ROOT, ROOT, (python, "-m", "remote.jobs.runner"), {"PYTHONPATH": ROOT})
        self.id = f"check-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.directory = os.path.join(records.job_folder(str(workspace)), self.id)
        os.makedirs(self.directory)

    def write(self, code: str, kind: str = jobs.KIND_TASK, **more: Any) -> Bench:
        """Writes the job's spec: its stage is this code, after the prelude."""
        values: dict[str, Any] = {
            "argv": (sys.executable, "-c", PRELUDE + code),
            "grace_seconds": 0.3,
            "machine_id": procfs.machine_id(),
            "parameters": {},
            **more,
        }
        spec = JobSpec(
            id=self.id,
            stage="check",
            kind=kind,
            cwd=str(self.workspace),
            created=time.time(),
            host="here",
            user="me",
            **values,
        )
        records.write_record(os.path.join(self.directory, records.SPEC), spec, durable=False)
        return self

    def start(self) -> Bench:
        problem = detaching.start_runner(self.bundle, self.directory, lambda: bool(self.runner()), 10.0)
        assert problem == "", problem
        return self

    def runner(self) -> Optional[ProcessId]:
        try:
            return records.read_record(os.path.join(self.directory, records.LOCK), ProcessId)
        except records.RecordError:
            return None

    def job(self) -> Job:
        return self.store.find(self.id)

    def state(self) -> Optional[JobState]:
        return records.read_record(os.path.join(self.directory, records.STATE), JobState)

    def wait_for(self, *states: str, seconds: float = 20.0) -> Job:
        job: Job = until(lambda: next((job for job in [self.job()] if job.state in states), None), seconds)
        return job

    def noted(self, *names: str) -> dict[str, ProcessId]:
        """The processes that noted themselves, once all of these names have."""

        def read() -> Optional[dict[str, ProcessId]]:
            path = self.workspace / "noted"
            lines = path.read_text().splitlines() if path.exists() else []
            found = {
                name: ProcessId(int(pid), int(ticks), procfs.boot_id()) for name, pid, ticks in map(str.split, lines)
            }
            return found if set(names) <= set(found) else None

        found: dict[str, ProcessId] = until(read)
        return found

    def stop(self, force: bool = False) -> Job:
        return self.launcher.stop(self.id, "a test", force)

    def log(self) -> str:
        """What the stage has said, empty before it is started."""
        path = Path(self.directory, records.LOG)
        return path.read_text() if path.exists() else ""

    def events(self) -> list[str]:
        return [f"{event.kind}: {event.text}" for event in self.store.events(self.id, 0)]


def living(processes: dict[str, ProcessId]) -> list[str]:
    return sorted(name for name, process in processes.items() if procfs.alive(process))
