"""Ending a stage whose runner has died: what the records name, what descends from it, and its session.

Orphans cannot be adopted afterwards, so their tree is followed by hand: everything seen once below a recorded process
is remembered with its start time. The recorded session counts only while a process that the records name is in it: a
session id is a pid and can be reused like one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Optional

from remote import procfs
from remote.jobs import records
from remote.jobs.appending import EventLog
from remote.jobs.ending import Ending
from remote.jobs.records import RecordError, read_record
from remote.jobs.signals import signal_name
from remote.jobs.statefile import StateFile
from remote.jobs.wakeup import Wakeup
from remote.protocol import jobs
from remote.protocol.jobs import JobExit, JobSpec, JobStarted, JobState, ProcessId, StopRequest

TURN_SECONDS = 0.1

_NOBODY = ProcessId(-1, -1, "")


class LeftOver:
    """The living processes of a stage, known from the identities that its dead runner recorded."""

    def __init__(self, recorded: Sequence[ProcessId], session: int) -> None:
        self._known = set(recorded)
        self._session = session

    def members(self) -> list[ProcessId]:
        """Who lives now; also remembers them, so that a child stays known when its parent has ended."""
        table = procfs.table()
        boot = procfs.boot_id()

        def identity(record: procfs.Stat) -> ProcessId:
            return ProcessId(record.pid, record.start_ticks, boot)

        ours = [record for record in table.values() if identity(record) in self._known and not record.zombie]
        if any(record.session == self._session for record in ours):
            ours += [record for record in table.values() if record.session == self._session and not record.zombie]
        ours += procfs.descendants([record.pid for record in ours], table)
        found = {identity(record): None for record in ours}
        self._known.update(found)
        return list(found)


def end(directory: str, spec: JobSpec, wakeup: Wakeup) -> None:
    """Ends what a dead runner left and writes the job's last records. Returns when nothing is left."""
    started = _read(directory, records.STARTED, JobStarted)
    state = _read(directory, records.STATE, JobState)
    processes = [*([started.main] if started else []), *(state.processes if state else ())]
    main = processes[0] if processes else _NOBODY
    request = _read(directory, records.STOP, StopRequest) or StopRequest(time.time())
    previous = state or JobState(jobs.RUNNING, time.time())
    events = EventLog(os.path.join(directory, records.EVENTS), after=_last_seq(directory, previous.seq))
    state_file = StateFile(os.path.join(directory, records.STATE))
    left = LeftOver(processes, started.session if started else _NOBODY.pid)

    def report(number: int, reached: Sequence[ProcessId]) -> None:
        pids = ", ".join(str(process.pid) for process in reached[:20])
        events.add(jobs.EVENT_SIGNAL, f"{signal_name(number)} to {len(reached)} left-over processes ({pids}).")

    events.add(jobs.EVENT_STOP, f"Stop requested by {request.requested_by or 'someone'}; the runner had died before.")
    ending = Ending(main, left.members, report)
    ending.ask(time.monotonic(), spec.grace_seconds)
    while not ending.over:
        now = time.monotonic()
        if request.force or wakeup.terminated:
            ending.force(now)
        main_lives = procfs.alive(main)
        if not main_lives:
            ending.main_ended(now)
        ending.step(now, main_lives)
        state_file.offer(
            JobState(
                jobs.STOPPING, 0.0, previous.progress, tuple(left.members()), events.seq, note="its runner had died"
            ),
            now,
        )
        wakeup.sleep(TURN_SECONDS)
        request = _read(directory, records.STOP, StopRequest) or request
    record = JobExit(jobs.STOPPED, time.time(), killed=ending.killed, survivors=ending.survivors)
    events.add(jobs.EVENT_ENDED, "Ended without its runner: the exit code is not known.", {"state": record.state})
    records.write_last(os.path.join(directory, records.EXIT), record, wakeup.sleep)
    events.flush()


def _read(directory: str, name: str, kind: type[records.T]) -> Optional[records.T]:
    try:
        return read_record(os.path.join(directory, name), kind)
    except RecordError:
        return None


def _last_seq(directory: str, at_least: int) -> int:
    """The number of the last event in the file: the runner may have died between an event and the state."""
    try:
        with open(os.path.join(directory, records.EVENTS), "rb") as file:
            return max(at_least, sum(1 for _ in file))
    except OSError:
        return at_least
