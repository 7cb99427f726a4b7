"""A stage under supervision: one loop that reaps, reads the log, keeps the records and carries out a stop."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Optional
from urllib.parse import urlsplit

from pipeline.plan.events import INFO
from remote import procfs
from remote.jobs import listening, loadwatch, records, sampling
from remote.jobs.appending import EventLog, ThinningFile
from remote.jobs.ending import Ending
from remote.jobs.eventwatch import EventWatch
from remote.jobs.health import NOT_OURS, HealthPoller
from remote.jobs.kernelwatch import KernelWatch
from remote.jobs.logwatch import EVENTS, LogWatch, watcher_for
from remote.jobs.pruning import Retention
from remote.jobs.records import RecordError, read_record, write_record
from remote.jobs.signals import become_subreaper, outcome, reap, signal_name
from remote.jobs.statefile import StateFile
from remote.jobs.wakeup import Wakeup
from remote.protocol import jobs
from remote.protocol.jobs import JobExit, JobSpec, JobStarted, JobState, ProcessId, StopRequest
from remote.protocol.progress import Evidence, Failure, Progress

TURN_SECONDS = 0.25
SCAN_SECONDS = 2.5
SAMPLE_SECONDS = 5.0
SAMPLES_BYTES = 4 * 1024 * 1024
MAX_PROCESSES = 256  # recorded in state.json; a stage with more is still ended whole
MAX_PIDS = 100_000
MAX_WARNINGS = 200
RETENTION_SECONDS = 20.0  # the last pass of a run that has ended


class Supervision:
    """One run of a job's stage, from its start to ``exit.json``."""

    def __init__(self, directory: str, spec: JobSpec, wakeup: Wakeup, retention: Optional[Retention] = None) -> None:
        self._directory = directory
        self._spec = spec
        self._wakeup = wakeup
        self._events = EventLog(self._path(records.EVENTS))
        self._state_file = StateFile(self._path(records.STATE))
        self._samples = ThinningFile(self._path(records.SAMPLES), SAMPLE_SECONDS, SAMPLES_BYTES)
        self._watch: Optional[LogWatch] = LogWatch(
            self._path(records.LOG), self._path(records.INDEX), watcher_for(spec)
        )
        self._load = loadwatch.of_job(directory, spec)
        self._stage_events = EventWatch(directory) if spec.watcher == EVENTS else None
        self._retention = retention
        self._kernel = KernelWatch()
        self._pids: set[int] = set()  # that the tree ever had: the kernel's log names processes that are gone
        self._begin = time.monotonic()
        self._main: Optional[ProcessId] = None
        self._outcome: Optional[tuple[Optional[int], Optional[int]]] = None
        self._stop: Optional[StopRequest] = None
        self._stopped = False  # the stop came while the main process ran; a later one does not make a failure a stop
        self._health: Optional[HealthPoller] = None
        if spec.health_url and spec.kind == jobs.KIND_SERVICE:
            self._health = HealthPoller(spec.health_url, self._listens)
        self._healthy = False
        self._was_ready = False
        self._foreign = False  # somebody else has answered the health check
        self._progress = Progress()
        self._evidence: tuple[Evidence, ...] = ()
        self._processes: tuple[ProcessId, ...] = ()
        self._scanned = float("-inf")
        self._seen_phases = 0
        self._warnings = 0

    def run(self) -> None:
        """Starts the stage and returns when it has ended, with everything that it started."""
        become_subreaper()
        for check in self._spec.forced:
            self._events.add(jobs.EVENT_WARNING, f"Started in spite of the check {check}.")
        self._look_for_stop()
        if self._stop is not None:
            self._finish(JobExit(jobs.STOPPED, time.time()), "Stopped before it was started.")
            return
        try:
            process = self._start()
        except OSError as error:
            self._could_not_start(error)
            return
        main = self._main = procfs.identity(process.pid) or ProcessId(process.pid, 0, procfs.boot_id())
        self._pids.add(main.pid)
        self._record_start(main)
        if self._health is not None:
            self._health.start()
        ending = Ending(main, self._members, self._report_signal)
        while not ending.over:
            self._turn(process, ending)
            if not ending.over:
                self._wakeup.sleep(TURN_SECONDS)
        if self._health is not None:
            self._health.close()
        self._end(ending)

    def _start(self) -> subprocess.Popen[bytes]:
        log = os.open(
            self._path(records.LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        try:
            return subprocess.Popen(
                self._spec.argv,
                cwd=self._spec.cwd,
                env={**os.environ, **self._spec.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)

    def _could_not_start(self, error: OSError) -> None:
        failure = Failure(
            klass="cannot_start",
            cause=f"{self._spec.argv[0]} could not be started: {error.strerror} ({error.filename}).",
            remedy="Check the profile's python and the stage's folder on the host.",
        )
        self._events.add(jobs.EVENT_FAILURE, failure.cause)
        self._finish(JobExit(jobs.FAILED, time.time(), failure=failure), "Could not be started.")

    def _record_start(self, main: ProcessId) -> None:
        runner = procfs.identity(os.getpid()) or ProcessId(os.getpid(), 0, procfs.boot_id())
        try:
            write_record(self._path(records.STARTED), JobStarted(runner, main, main.pid, time.time()), durable=True)
        except OSError as error:
            self._warn(f"started.json cannot be written: {error.strerror}.")
        self._events.add(jobs.EVENT_STARTED, f"Started as process {main.pid}.", {"pid": main.pid})

    def _turn(self, process: subprocess.Popen[bytes], ending: Ending) -> None:
        """One pass over everything; nothing in it waits longer than a disk may take for a small write."""
        now = time.monotonic()
        status = reap().get(process.pid)
        if status is not None:
            self._outcome = outcome(status)
            process.returncode = os.waitstatus_to_exitcode(status)  # reaped already: Popen must not ask again
            ending.main_ended(now)
        self._look_for_stop(ending)
        if self._stop is not None or self._outcome is not None:
            ending.step(now, main_lives=self._outcome is None)
        self._observe_health()
        if self._watch is not None:
            self._guarded_watch(now)
        self._scan(now)
        self._events.flush()
        self._state_file.offer(self._state(), now)

    def _guarded_watch(self, now: float) -> None:
        """A log that the watcher cannot read must not end the supervision: the job then runs without progress."""
        assert self._watch is not None
        try:
            self._watch.turn(now, self._at())
            self._take_progress(self._watch, done=False)
        except Exception as error:
            self._watch = None
            self._warn(f"The log is no longer watched: {type(error).__name__}: {error}.")

    def _reached_ready(self) -> bool:
        """Ready now, or was ready when its end began: the history of a load keeps how far it came."""
        ending = self._stop is not None or self._outcome is not None
        return self._healthy or (self._was_ready and ending)

    def _take_progress(self, watch: LogWatch, done: bool) -> None:
        if self._stage_events is None:
            self._set_progress(self._with_outlook(watch, watch.progress(self._at(), self._reached_ready())))
            return
        self._stage_events.turn(self._at())
        for level, text in self._stage_events.news():
            self._events.add(jobs.EVENT_MESSAGE if level == INFO else jobs.EVENT_WARNING, text)
        self._evidence = self._stage_events.evidence
        if self._retention is not None:
            self._retention.offer(self._stage_events.saved)
            if done:
                self._retention.wait(RETENTION_SECONDS)
            for well, text in self._retention.news():
                self._events.add(jobs.EVENT_MESSAGE if well else jobs.EVENT_WARNING, text)
        self._set_progress(self._stage_events.progress(done, self._at() if self._outcome is None else None))

    def _with_outlook(self, watch: LogWatch, told: Progress) -> Progress:
        """The progress of a load with its estimate; one that cannot be made takes nothing else away."""
        if self._load is None or self._outcome is not None:
            return told
        pids = [process.pid for process in self._processes]
        try:
            return self._load.progress(told, watch.version, watch.offset, pids, self._at())
        except Exception as error:
            self._load = None
            self._warn(f"No estimate any more: {type(error).__name__}: {error}.")
            return told

    def _set_progress(self, progress: Progress) -> None:
        self._progress = dataclasses.replace(progress, ready=self._healthy)
        for phase in progress.phases[self._seen_phases :]:
            if phase.name == jobs.READY:
                continue  # has an event of its own
            detail = f": {phase.detail}" if phase.detail else ""
            self._events.add(
                jobs.EVENT_PHASE, f"{phase.name}{detail}", {"phase": phase.name, "at": round(phase.start, 3)}
            )
        self._seen_phases = max(self._seen_phases, len(progress.phases))

    def _look_for_stop(self, ending: Optional[Ending] = None) -> None:
        """Takes up a stop request, and a later forced one; SIGTERM to the runner is one too."""
        asked = self._stop
        request = StopRequest(time.time(), "a signal to the runner") if self._wakeup.terminated else None
        if os.path.lexists(self._path(records.STOP)):
            try:
                request = read_record(self._path(records.STOP), StopRequest) or request
            except RecordError:
                request = request or StopRequest(time.time(), "an unreadable stop.json")
        if request is None or (asked is not None and (asked.force or not request.force)):
            return
        self._stop = request
        self._stopped = self._stopped or self._outcome is None
        who = f" by {request.requested_by}" if request.requested_by else ""
        self._events.add(
            jobs.EVENT_STOP,
            f"{'Forced stop' if request.force else 'Stop'} requested{who}.",
            {"requested_by": request.requested_by, "force": request.force},
        )
        if ending is None:
            return
        if request.force:
            ending.force(time.monotonic())
        elif self._outcome is None:
            ending.ask(time.monotonic(), self._spec.grace_seconds)

    def _observe_health(self) -> None:
        if self._health is None or self._outcome is not None:
            self._healthy = False
            return
        health = self._health.latest()
        if health.healthy and not self._healthy:
            self._events.add(jobs.EVENT_READY, f"Ready after {self._at():.1f} s.", {"seconds": round(self._at(), 3)})
        if self._healthy and not health.healthy and self._stop is None:
            self._warn(f"The health check fails: {health.problem}.")
        if health.problem == NOT_OURS and not self._foreign:
            self._foreign = True
            self._warn(f"Not ready: {NOT_OURS}.")
        self._healthy = health.healthy
        self._was_ready = self._was_ready or health.healthy

    def _listens(self) -> Optional[bool]:
        port = urlsplit(self._spec.health_url or "").port
        return listening.listens(port, [process.pid for process in self._members()]) if port else None

    def _scan(self, now: float) -> None:
        if now - self._scanned < min(SCAN_SECONDS, self._at() / 4):  # a young tree grows faster
            return
        self._scanned = now
        self._processes = tuple(self._members())[:MAX_PROCESSES]
        if len(self._pids) < MAX_PIDS:
            self._pids.update(process.pid for process in self._processes)
        if self._samples.due(now):
            self._samples.append(now, sampling.sample(process.pid for process in self._processes))

    def _members(self) -> Sequence[ProcessId]:
        boot = procfs.boot_id()
        return [ProcessId(record.pid, record.start_ticks, boot) for record in procfs.descendants([os.getpid()])]

    def _report_signal(self, number: int, processes: Sequence[ProcessId]) -> None:
        whom = (
            "the main process"
            if list(processes) == [self._main]
            else f"{len(processes)} process{'es' if len(processes) > 1 else ''}"
        )
        pids = [process.pid for process in processes[:20]]
        self._events.add(
            jobs.EVENT_SIGNAL,
            f"{signal_name(number)} to {whom} ({', '.join(map(str, pids))}{', …' if len(processes) > 20 else ''}).",
            {"signal": number, "count": len(processes)},
        )

    def _warn(self, text: str) -> None:
        self._warnings += 1
        if self._warnings <= MAX_WARNINGS:
            self._events.add(jobs.EVENT_WARNING, text)

    def _state(self) -> JobState:
        state = jobs.READY if self._healthy else jobs.RUNNING
        if self._stop is not None or self._outcome is not None:
            state = jobs.STOPPING
        return JobState(
            state=state,
            wall=0.0,
            progress=self._progress,
            processes=self._processes,
            seq=self._events.seq,
            evidence=self._evidence,
            note="; ".join(filter(None, (self._state_file.problem, self._events.problem, self._health_note()))),
        )

    def _health_note(self) -> str:
        if self._health is None or self._healthy or self._outcome is not None:
            return ""
        problem = self._health.latest().problem
        if problem == NOT_OURS:
            return problem
        return f"was ready; the health check fails: {problem}" if self._was_ready else ""

    def _end(self, ending: Ending) -> None:
        code, number = self._outcome or (None, None)
        failure = None
        try:
            if self._watch is not None:
                self._watch.drain(self._at())
                self._take_progress(self._watch, done=code == 0)
                failure = self._watch.failure(code, number, self._kernel.word(self._pids))
        except Exception as error:
            self._warn(f"The end of the log could not be read: {type(error).__name__}: {error}.")
        state = self._final_state(code)
        if state == jobs.FAILED:
            if self._stage_events is not None:
                failure = self._stage_events.explained(failure)
            failure = failure or unexplained(code, number)
            self._events.add(jobs.EVENT_FAILURE, failure.cause, {"class": failure.klass, "line": failure.line[:1000]})
        else:
            failure = None
        record = JobExit(state, time.time(), code, number, failure, ending.killed, ending.survivors, seconds=self._at())
        self._processes = ending.survivors
        self._finish(record, ended_text(record))

    def _final_state(self, code: Optional[int]) -> str:
        if self._stopped:
            return jobs.STOPPED
        if self._spec.kind == jobs.KIND_TASK and code == 0:
            return jobs.DONE
        return jobs.FAILED

    def _finish(self, record: JobExit, text: str) -> None:
        """The last records; ``exit.json`` is the very last, and what was held back by a full disk follows it."""
        at = self._at()
        phases = tuple(
            phase if phase.end is not None else dataclasses.replace(phase, end=at) for phase in self._progress.phases
        )
        self._progress = dataclasses.replace(self._progress, phases=phases, ready=record.state == jobs.DONE)
        self._events.add(jobs.EVENT_ENDED, text, {"state": record.state, "code": record.code, "signal": record.signal})
        self._state_file.offer(self._state(), time.monotonic(), at_once=True)
        records.write_last(self._path(records.EXIT), record, self._wakeup.sleep)
        self._events.flush()

    def _at(self) -> float:
        return time.monotonic() - self._begin

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def unexplained(code: Optional[int], number: Optional[int]) -> Failure:
    """The failure of a stage whose log could not be watched to its end."""
    how = f"was ended by {signal_name(number)}" if number is not None else f"ended with exit code {code}"
    return Failure(klass="gone", cause=f"The main process {how}; its log could not be read for a reason.")


def ended_text(record: JobExit) -> str:
    """The sentence of the last event."""
    how = f"by {signal_name(record.signal)}" if record.signal is not None else f"with exit code {record.code}"
    left = f"; {record.killed} left-over process{'es' if record.killed != 1 else ''} ended" if record.killed else ""
    alive = f"; {len(record.survivors)} could not be ended" if record.survivors else ""
    return f"Ended {how}: {record.state}{left}{alive}."
