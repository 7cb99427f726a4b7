"""The jobs of a workspace, read from their directories. Reads only; nothing in a directory can break the list."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from remote import procfs
from remote.jobs import logreading, records
from remote.jobs import since as since_times
from remote.jobs.judging import Here, Records, judge
from remote.jobs.records import RecordError
from remote.jobs.strays import Strays
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import BAD_ARGUMENT, FAILED, NOT_FOUND, ProtocolError, RequestError
from remote.protocol.jobs import (
    ENDED_STATES,
    SCHEMA,
    Job,
    JobEvent,
    JobExit,
    JobList,
    JobSpec,
    JobStarted,
    JobState,
    LogChunk,
    ProcessId,
    StopRequest,
)

LIST_BYTES = 200 * 1024  # of the 256 KiB of a frame
JOB_BYTES = 24 * 1024  # a larger one is shown without its details
FULL_ENDED_JOBS = 20  # the newest ended jobs, listed in full
EVENTS_BYTES = 4 * 1024 * 1024
INDEX_BYTES = 4 * 1024 * 1024

_PARTS: tuple[tuple[str, str, Any], ...] = (
    ("spec", records.SPEC, JobSpec),
    ("started", records.STARTED, JobStarted),
    ("state", records.STATE, JobState),
    ("exit", records.EXIT, JobExit),
    ("stop", records.STOP, StopRequest),
    ("runner", records.LOCK, ProcessId),
)

_EXIT_PART = [name for _, name, _ in _PARTS].index(records.EXIT)

_Signature = Optional[tuple[int, int, int]]


@dataclass(frozen=True)
class _Shown:
    """A job with its size on the wire, and the same for its short form: without phases, figures and command line."""

    job: Job
    size: int
    short: Job
    short_size: int


@dataclass
class _Cached:
    """What was read of a job directory, with the files' identities when it was; ``ended`` is the final judgement."""

    signatures: tuple[_Signature, ...]
    records: Records
    ended: Optional[_Shown] = None


class JobStore:
    """The job directories below a workspace. Its methods can be called from any thread.

    :param workspace: None for a profile without one; there are no jobs then.
    """

    def __init__(self, workspace: Optional[str]) -> None:
        self._lock = threading.RLock()
        self._workspace = workspace or ""
        self.folder = records.job_folder(workspace) if workspace else None
        self._strays = Strays(self.folder) if self.folder else None
        self._cache: dict[str, _Cached] = {}
        self._events: dict[str, tuple[_Signature, list[JobEvent]]] = {}

    def list(self) -> JobList:
        """All jobs, newest first, as many as fit into a frame; living ones always come first into it."""
        if self.folder is None:
            return JobList(problem="the profile names no workspace")
        try:
            found = self._all()
            if not found:
                os.stat(self._workspace)
            return _fitted(found)
        except FileNotFoundError:
            return JobList(problem=f"the workspace {self._workspace} does not exist")
        except OSError as error:
            return JobList(problem=f"the job folder {self.folder} cannot be read: {error.strerror}")

    def find(self, name: str) -> Job:
        """The job of that id, the newest of that stage, or the only one whose id begins so.

        A job that runs without its directory, because that was removed, is found by its id or stage only.

        :raises RequestError: ``not_found`` when there is none or several, naming what there is.
        """
        jobs = self._readable()
        for job in jobs:
            if job.id == name:
                return job
        newest = next((job for job in jobs if job.stage == name), None)
        if newest is not None and newest.state not in ENDED_STATES:
            return newest
        stray = self._strays.find(name) if self._strays else None
        if stray is not None:
            return stray
        if newest is not None:
            return newest
        matching = [job for job in jobs if name and job.id.startswith(name)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise RequestError(NOT_FOUND, f"{name!r} fits several jobs: {_names(matching)}")
        raise RequestError(NOT_FOUND, f"there is no job {name!r}; there are: {_names(jobs)}")

    def stray(self, job_id: str) -> Optional[ProcessId]:
        """The runner of a job that ``find`` has found without its directory; None for any other job."""
        if self._strays is None or os.path.lexists(os.path.join(self.folder or "", job_id)):
            return None
        return self._strays.runner(job_id)

    def with_key(self, key: str) -> Optional[Job]:
        """The job that was launched with this idempotency key, None where there is none."""
        with self._lock:
            for job in self._readable():
                spec = self._cache[job.id].records.spec
                if spec is not None and spec.key == key:
                    return job
        return None

    def directory(self, job_id: str) -> str:
        """The directory of a job.

        :raises RequestError: ``not_found`` when there is no such directory; a symbolic link is none.
        """
        if self.folder is not None and records.JOB_ID.match(job_id):
            path = os.path.join(self.folder, job_id)
            if os.path.isdir(path) and not os.path.islink(path):
                return path
        raise RequestError(NOT_FOUND, f"there is no job {job_id!r}")

    def records(self, job_id: str) -> Records:
        """What can be read of a job's directory now.

        :raises RequestError: ``not_found``.
        """
        self.directory(job_id)
        with self._lock:
            return self._read(job_id).records

    def events(self, job_id: str, after: int) -> Sequence[JobEvent]:
        """The events of a job with a number over ``after``, in order. Lines that are no events are passed over.

        :raises RequestError: ``not_found``.
        """
        path = os.path.join(self.directory(job_id), records.EVENTS)
        signature = _signature(path)
        with self._lock:
            known = self._events.get(job_id)
            if known is None or known[0] != signature:
                known = self._events[job_id] = (signature, _read_events(path))
        return [event for event in known[1] if event.seq > after]

    def read_log(
        self,
        job_id: str,
        offset: Optional[int] = None,
        tail: Optional[int] = None,
        max_bytes: int = logreading.READ_BYTES,
        since: Optional[str] = None,
    ) -> LogChunk:
        """A piece of a job's log from a byte offset, or from where its last ``tail`` lines begin.

        :param since: a time as ``since.parse_time`` reads it; with ``tail`` the last lines of those written since.

        :raises RequestError: ``not_found``; ``bad_argument`` for a negative number or both at once; ``failed`` when the
            log cannot be read.
        """
        if (offset is not None and tail is not None) or (offset or 0) < 0 or (tail or 0) < 0:
            raise RequestError(
                BAD_ARGUMENT, "a log is read from an offset or by its last lines: one number, not negative"
            )
        path = os.path.join(self.directory(job_id), records.LOG)
        with self._lock:
            ended = self._judged(job_id, _here()).job.state in ENDED_STATES
        try:
            start = logreading.tail_offset(path, tail, ended) if tail is not None else offset or 0
            if since is None:
                return logreading.read(path, job_id, start, ended, max_bytes)
            begin, note = self._since(job_id, path, since)
            chunk = logreading.read(path, job_id, max(start, begin), ended, max_bytes)
            return dataclasses.replace(chunk, note=note)
        except OSError as error:
            raise RequestError(FAILED, f"the log of {job_id} cannot be read: {error.strerror}") from None

    def _since(self, job_id: str, log: str, text: str) -> tuple[int, str]:
        """Where the lines that were written since a time begin, and what there is to say about it."""
        now = time.time()
        try:
            wall = since_times.parse_time(text, now)
        except (ValueError, OverflowError) as error:
            raise RequestError(BAD_ARGUMENT, str(error)) from None
        if wall > now:
            return sys.maxsize, f"that is in the future: the host's clock says {time.strftime('%Y-%m-%d %H:%M:%S')}"
        try:
            data = records.read_file(os.path.join(self.directory(job_id), records.INDEX), INDEX_BYTES)
        except RecordError:
            data = None
        entries = since_times.parse_index(data or b"")
        if not entries:
            return 0, "this log has no time index: all of it is given"
        return logreading.line_start(log, since_times.offset_since(entries, wall)), ""

    def _readable(self) -> Sequence[Job]:
        try:
            return [shown.job for shown in self._all()]
        except OSError as error:
            raise RequestError(FAILED, f"the job folder {self.folder} cannot be read: {error.strerror}") from None

    def _all(self) -> Sequence[_Shown]:
        if self.folder is None:
            return []
        try:
            names = [name for name in os.listdir(self.folder) if records.JOB_ID.match(name)]
        except FileNotFoundError:
            names = []
        here = _here()
        with self._lock:
            for forgotten in set(self._cache).difference(names):
                del self._cache[forgotten]
                self._events.pop(forgotten, None)
            jobs = [self._judged(name, here) for name in names]
        return sorted(jobs, key=lambda shown: (shown.job.created, shown.job.id), reverse=True)

    def _judged(self, job_id: str, here: Here) -> _Shown:
        cached = self._read(job_id)
        if cached.ended is not None:
            return cached.ended
        shown = _shown(judge(cached.records, here))
        if cached.records.exit is not None:
            cached.ended = shown
        return shown

    def _read(self, job_id: str) -> _Cached:
        """The records of a job, read again only where a file has changed."""
        assert self.folder is not None
        path = os.path.join(self.folder, job_id)
        cached = self._cache.get(job_id)
        if (
            cached is not None
            and cached.ended is not None
            and cached.signatures[_EXIT_PART] == _signature(os.path.join(path, records.EXIT))
        ):
            return cached  # an ended job changes no more: one look makes sure that it is still the same
        signatures = tuple(_signature(os.path.join(path, name)) for _, name, _ in _PARTS)
        if cached is None or cached.signatures != signatures:
            cached = self._cache[job_id] = _Cached(signatures, _read_records(path, job_id))
        return cached


def _read_records(path: str, job_id: str) -> Records:
    try:
        status = os.lstat(path)
    except OSError as error:
        return Records(job_id, 0.0, problems=(f"the job directory cannot be read: {error.strerror}",))
    if not stat.S_ISDIR(status.st_mode):
        return Records(job_id, status.st_mtime, problems=("not a directory of its own (a link or a file)",))
    values: dict[str, Any] = {}
    problems = []
    for field, name, kind in _PARTS:
        try:
            values[field] = records.read_record(os.path.join(path, name), kind)
        except RecordError as error:
            if name != records.LOCK:  # empty for a moment between its creation and its first word
                problems.append(f"{name}: {error}")
        else:
            schema = getattr(values[field], "schema", SCHEMA)
            if schema > SCHEMA:
                problems.append(f"{name}: written by a newer version of the agent (schema {schema})")
    if values.get("spec") is None and not problems:
        problems.append("spec.json is missing")
    return Records(job_id, status.st_mtime, log=os.path.join(path, records.LOG), problems=tuple(problems), **values)


def _read_events(path: str) -> list[JobEvent]:
    try:
        data = records.read_file(path, EVENTS_BYTES) or b""
    except RecordError:
        return []
    events = []
    for line in data.split(b"\n")[:-1]:
        if len(line) > records.MAX_LINE_BYTES:
            continue
        try:
            event = from_wire(JobEvent, records.parse_json(line))
        except (RecordError, ProtocolError):
            continue
        events.append(dataclasses.replace(event, data=records.scalars(event.data)))
    return events


def _signature(path: str) -> _Signature:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _here() -> Here:
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)  # what start times in /proc are counted by
    return Here(procfs.machine_id(), procfs.boot_id(), time.time(), procfs.alive, uptime)


def _encoded_size(record: Any) -> int:
    return len(json.dumps(to_wire(record), separators=(",", ":")))


def _shown(job: Job) -> _Shown:
    size = _encoded_size(job)
    if size > JOB_BYTES:
        job = _slim(job)
        size = _encoded_size(job)
    progress = dataclasses.replace(job.progress, phases=(), figures=None)
    short = dataclasses.replace(job, progress=progress, command_line="")
    return _Shown(job, size, short, _encoded_size(short))


def _slim(job: Job) -> Job:
    """The job without its details: they are too large for a list, which those of an honest job never are."""
    return Job(
        id=job.id,
        stage=job.stage[:32],
        kind=job.kind[:16],
        state=job.state,
        created=job.created,
        host=job.host[:253],
        parameters={},
        command_line=job.command_line[:500],
        started=job.started,
        ended=job.ended,
        seconds=job.seconds,
        code=job.code,
        signal=job.signal,
        pids=job.pids[:64],
        note="its records are too large to be shown; " + job.note[:500],
        log=job.log[:4096],
        simulated=job.simulated,
    )


def _fitted(all_jobs: Sequence[_Shown]) -> JobList:
    """The list within its bound: living jobs first, then ended ones from the newest on."""
    ended = [shown for shown in all_jobs if shown.job.state in ENDED_STATES]
    living = [shown for shown in all_jobs if shown.job.state not in ENDED_STATES]
    candidates = [(shown.job, shown.size) for shown in [*living, *ended[:FULL_ENDED_JOBS]]]
    candidates += [(shown.short, shown.short_size) for shown in ended[FULL_ENDED_JOBS:]]
    budget, kept = LIST_BYTES, []
    for job, size in candidates:
        budget -= size + 1
        if budget < 0:
            break
        kept.append(job)
    kept.sort(key=lambda job: (job.created, job.id), reverse=True)
    return JobList(tuple(kept), omitted=len(all_jobs) - len(kept))


def _names(jobs: Sequence[Job]) -> str:
    shown = ", ".join(job.id for job in jobs[:10])
    return (shown or "none") + (f" and {len(jobs) - 10} more" if len(jobs) > 10 else "")
