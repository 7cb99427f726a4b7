"""What state a job is in: judged from its records and from which processes live. Pure.

The exit record wins. A job of another machine is never judged by this machine's processes. Without a living runner the
stage's recorded processes decide whether it is unsupervised or gone.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from remote.jobs.records import scalars
from remote.protocol import jobs
from remote.protocol.jobs import Job, JobExit, JobSpec, JobStarted, JobState, ProcessId, StopRequest
from remote.protocol.progress import Progress

YOUNG_SECONDS = 15.0
"""So long a job may have no runner yet: a Python start on a cold network file system."""

_TICKS = os.sysconf("SC_CLK_TCK")

_SUPERVISED = (jobs.RUNNING, jobs.READY, jobs.STOPPING)


@dataclass(frozen=True)
class Records:
    """What could be read of a job directory; ``problems`` are sentences about what could not.

    :param runner: the latest runner, as it wrote itself into the lock file.
    :param created: a time for a job whose spec cannot be read: the directory's.
    """

    id: str
    created: float
    spec: Optional[JobSpec] = None
    started: Optional[JobStarted] = None
    state: Optional[JobState] = None
    exit: Optional[JobExit] = None
    stop: Optional[StopRequest] = None
    runner: Optional[ProcessId] = None
    log: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Here:
    """The machine that judges: who it is, what time it is, which processes live, and the seconds since its boot."""

    machine_id: str
    boot_id: str
    wall: float
    alive: Callable[[ProcessId], bool]
    uptime: float


def judge(records: Records, here: Here) -> Job:
    """The job as it is now."""
    job = _described(records)
    if records.exit is not None:
        return _ended(job, records, records.exit)
    if records.spec is not None and records.spec.machine_id != here.machine_id:
        return _noted(dataclasses.replace(job, state=jobs.ELSEWHERE), f"on {records.spec.host}")
    runner = records.runner or (records.started.runner if records.started else None)
    if runner is not None and here.alive(runner):
        return _supervised(job, records, here)
    if any(here.alive(process) for process in recorded_processes(records)):
        job = dataclasses.replace(job, state=jobs.UNSUPERVISED, seconds=_running_seconds(records, here))
        return _noted(job, "its runner died, the stage lives on; stop ends it")
    if records.started is None and abs(here.wall - job.created) < YOUNG_SECONDS and runner is None:
        return dataclasses.replace(job, state=jobs.STARTING, seconds=_since(job.created, here.wall))
    return _gone(job, records, here)


def recorded_processes(records: Records) -> tuple[ProcessId, ...]:
    """The stage's processes as its runner last wrote them down, the main one first."""
    main = (records.started.main,) if records.started else ()
    return (*main, *(process for process in (records.state.processes if records.state else ()) if process not in main))


def _described(records: Records) -> Job:
    """The part of a job that does not depend on its state."""
    spec, state = records.spec, records.state
    stage, _, stamp = records.id.partition("-")
    return Job(
        id=records.id,
        stage=spec.stage if spec else stage,
        kind=spec.kind if spec else "",
        state=jobs.GONE,
        created=spec.created if spec else _stamp_time(stamp) or records.created,
        host=spec.host if spec else "",
        parameters=scalars(spec.parameters) if spec else {},
        command_line=spec.command_line if spec else "",
        progress=state.progress if state else Progress(),
        started=records.started.wall if records.started else None,
        failure=state.failure if state else None,
        pids=tuple(process.pid for process in recorded_processes(records)),
        health_url=spec.health_url if spec else None,
        note="; ".join(note for note in (*records.problems, state.note if state else "") if note),
        log=records.log,
        simulated=spec.simulated if spec else False,
        evidence=state.evidence if state else (),
    )


def _ended(job: Job, records: Records, ending: JobExit) -> Job:
    known = ending.state in jobs.ENDED_STATES
    job = dataclasses.replace(
        job,
        state=ending.state if known else jobs.GONE,
        ended=ending.wall,
        seconds=_since(job.started, ending.wall) if ending.seconds is None else max(0.0, ending.seconds),
        code=ending.code,
        signal=ending.signal,
        failure=ending.failure,
        pids=tuple(process.pid for process in ending.survivors),
    )
    if not known:
        job = _noted(job, "exit.json names no known state")
    if ending.survivors:
        job = _noted(job, f"{len(ending.survivors)} processes could not be ended")
    return job


def _supervised(job: Job, records: Records, here: Here) -> Job:
    state = records.state
    if state is None or state.state not in _SUPERVISED:
        name, silent = jobs.STARTING if records.started is None else jobs.RUNNING, None
    else:
        name, silent = state.state, max(0.0, here.wall - state.wall)
    if records.stop is not None:
        name = jobs.STOPPING
    if records.started is not None and not here.alive(records.started.main):
        name = jobs.STOPPING
        job = _noted(job, "the stage has ended; its runner is ending what is left, or waits for room to record the end")
    seconds = _running_seconds(records, here) or _since(job.created, here.wall)
    return dataclasses.replace(job, state=name, silent=silent, seconds=seconds)


def _gone(job: Job, records: Records, here: Here) -> Job:
    last = records.state.wall if records.state else job.started
    job = dataclasses.replace(job, state=jobs.GONE, ended=last, seconds=_since(job.started, last), pids=())
    if records.spec is None:
        return job
    if records.started is None:
        return _noted(job, "its runner ended before it started the stage")
    if records.started.main.boot_id != here.boot_id:
        return _noted(job, "the host was restarted while it ran")
    return _noted(job, "runner and stage are gone and left no exit record")


def _noted(job: Job, note: str) -> Job:
    return dataclasses.replace(job, note=f"{job.note}; {note}" if job.note else note)


def _running_seconds(records: Records, here: Here) -> Optional[float]:
    """How long the stage's main process has run, by the kernel's own clock: the host's wall clock may be set."""
    if records.started is None:
        return None
    ticks = records.started.main.start_ticks
    return max(0.0, here.uptime - ticks / _TICKS) if ticks else _since(records.started.wall, here.wall)


def _since(start: Optional[float], end: Optional[float]) -> Optional[float]:
    return None if start is None or end is None else max(0.0, end - start)


def _stamp_time(stamp: str) -> Optional[float]:
    """The time that a job id carries, in the host's time zone."""
    match = re.match(r"\d{8}-\d{6}", stamp)
    try:
        return time.mktime(time.strptime(match.group(), "%Y%m%d-%H%M%S")) if match else None
    except (ValueError, OverflowError):
        return None
