"""All adopted programs of this host: found by scans, each with its watch; and what an agent does with them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pwd
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Optional

from remote import procfs
from remote.adopt import recognising, stopping
from remote.adopt.finding import Finder, Found, command, started_wall
from remote.adopt.watching import Watch
from remote.jobs import logreading
from remote.jobs.starts import StartsFile
from remote.policy import Policy
from remote.protocol import adopted, jobs
from remote.protocol.adopted import ADOPTED, Adopted, AdoptedList
from remote.protocol.codec import to_wire
from remote.protocol.errors import BAD_ARGUMENT, FAILED, NOT_FOUND, RequestError
from remote.protocol.jobs import LogChunk, ProcessId

SCAN_SECONDS = 3.0
"""A scan younger than this is not repeated."""

FIRST_LOOK_SECONDS = 4.0
"""How long a list waits for what was just found to be looked at once."""

ENDED_SECONDS = 120.0
"""How long a program stays listed after its end; one that somebody asked to watch stays for good."""

MAX_WATCHES = 64
"""Programs that are watched at once: any user of the host can start what looks like one."""

LIST_BYTES = 200 * 1024
"""Of the 256 KiB of a frame, for the list."""


class Adoption:
    """The adopted programs. Its methods can be called from any thread; scans happen one at a time.

    :param ours: the processes of our own jobs, their runners included.
    """

    def __init__(self, policy: Policy, ours: Callable[[], Collection[ProcessId]]) -> None:
        self._policy = policy
        self._ours = ours
        self._finder = Finder()
        self._lock = threading.RLock()
        self._watches: dict[str, Watch] = {}
        self._scanned = float("-inf")
        self._left_out = 0

    def list(self) -> AdoptedList:
        """Everything that runs now or ended a short while ago, the newest first."""
        self._scan_if_due()
        with self._lock:
            watches = list(self._watches.values())
        deadline = time.monotonic() + FIRST_LOOK_SECONDS
        for watch in watches:
            watch.wait(max(0.0, deadline - time.monotonic()))
        records = sorted((watch.snapshot() for watch in watches), key=lambda record: -(record.started or 0.0))
        return _fitted(records, self._finder.unseen, self._left_out)

    def adopt(self, log: Optional[str], pid: Optional[int]) -> Adopted:
        """Watches a log, a process, or a process with its log, because somebody asks for it; changes nothing.

        :raises RequestError: ``bad_argument`` for neither or a relative path, ``not_found`` for what is not there.
        """
        if log is None and pid is None:
            raise RequestError(BAD_ARGUMENT, "adopt needs a log or a pid")
        if log is not None:
            log = _log_path(log)
        self._scan_if_due()
        record = self._asked_for(log, pid if pid is not None else self._writer(log))
        with self._lock:
            known = self._watches.get(record.id)
            if known is not None and (log is None or known.record.log == log) and known.record.main == record.main:
                known.update(watched=True)
                watch = known
            else:
                if known is not None:
                    known.close()
                    if known.record.main == record.main:
                        record = _merged(known.record, record)
                watch = self._add(record, None)
        watch.wait(FIRST_LOOK_SECONDS)
        return watch.snapshot()

    def find(self, name: str) -> Watch:
        """The watch of an id, or of a pid in digits.

        :raises RequestError: ``not_found``, naming what there is.
        """
        self._scan_if_due()
        with self._lock:
            watch = self._watches.get(name) or self._watches.get(f"{ADOPTED}{name}")
            if watch is not None:
                return watch
            there = ", ".join(sorted(self._watches)) or "none"
        raise RequestError(NOT_FOUND, f"there is no adopted process {name!r}; there are: {there}")

    def stop(self, pid: int, start_ticks: int, typed: str, requested_by: str) -> Adopted:
        """Begins to end a program and answers at once; its record tells how it goes.

        :raises RequestError: see ``stopping.check``.
        """
        watch = self.find(str(pid))
        with self._lock:
            if watch.record.state == jobs.STOPPING:
                return watch.snapshot()
            main = stopping.check(watch.record, start_ticks, typed, self._policy)
            watch.update(state=jobs.STOPPING)
        threading.Thread(
            target=stopping.end, args=(watch, main, requested_by), name=f"stop {watch.record.id}", daemon=True
        ).start()
        return watch.snapshot()

    def read_log(self, name: str, offset: Optional[int], tail: Optional[int], max_bytes: int) -> LogChunk:
        """A piece of an adopted log from a byte offset, or from where its last ``tail`` lines begin.

        :raises RequestError: ``not_found`` when it has none, ``failed`` when it cannot be read.
        """
        watch = self.find(name)
        watch.wait(FIRST_LOOK_SECONDS)
        record = watch.snapshot()
        if record.log is None:
            raise RequestError(NOT_FOUND, f"{record.id} has no log: {record.log_note or 'nothing is known about it'}")
        try:
            start = logreading.tail_offset(record.log, tail, watch.over) if tail is not None else offset or 0
            return logreading.read(record.log, record.id, start, watch.over, max_bytes)
        except OSError as error:
            raise RequestError(FAILED, f"{record.log} cannot be read: {error.strerror or error}") from None

    def _scan_if_due(self) -> None:
        ours = self._ours() if time.monotonic() - self._scanned >= SCAN_SECONDS else ()
        with self._lock:
            if time.monotonic() - self._scanned < SCAN_SECONDS:
                return
            found = {f"{ADOPTED}{program.main.pid}": program for program in self._finder.scan(ours)}
            self._scanned = time.monotonic()
            ending = {
                process
                for watch in self._watches.values()
                if watch.record.state == jobs.STOPPING
                for process in watch.record.processes
            }
            self._left_out = 0
            for name, program in sorted(found.items(), key=lambda item: not _is_own(item[1].uid)):
                if program.main in ending:
                    continue  # what a server leaves while it is ended is no orphan of its own
                watch = self._watches.get(name)
                if watch is None or watch.record.main != program.main:
                    if len(self._watches) < MAX_WATCHES:
                        self._add(_record(name, program), program)
                    else:
                        self._left_out += 1
                elif not watch.over and watch.record.state != jobs.STOPPING:
                    watch.update(processes=program.processes)
            self._forget()

    def _forget(self) -> None:
        now = time.time()
        for name, watch in list(self._watches.items()):
            ended = watch.ended_at
            if ended is not None and not watch.record.watched and now - ended > ENDED_SECONDS:
                del self._watches[name]

    def _add(self, record: Adopted, program: Optional[Found]) -> Watch:
        what = program.what if program is not None else None
        watch = Watch(
            record,
            expected_port=what.port if what is not None else None,
            tls=what is not None and what.tls,
            uid=program.uid if program is not None else None,
            starts=StartsFile(self._policy.workspace, self._policy.readonly) if self._policy.workspace else None,
        )
        self._watches[record.id] = watch
        watch.start()
        return watch

    def _writer(self, log: Optional[str]) -> Optional[int]:
        """The main process of the program that was found to write this log."""
        with self._lock:
            watches = list(self._watches.values())
        deadline = time.monotonic() + FIRST_LOOK_SECONDS
        for watch in watches:
            watch.wait(max(0.0, deadline - time.monotonic()))
            record = watch.snapshot()
            if record.log == log and record.main is not None and (record.watched or not watch.over):
                return record.main.pid
        return None

    def _asked_for(self, log: Optional[str], pid: Optional[int]) -> Adopted:
        if pid is None:
            assert log is not None
            digest = hashlib.sha256(os.fsencode(log)).hexdigest()[:8]
            name = recognising.safe_name(log, "log")
            return Adopted(
                f"{ADOPTED}log-{digest}",
                name,
                adopted.KIND_LOG,
                jobs.RUNNING,
                log=log,
                log_note="as asked",
                watched=True,
            )
        known = self._watches.get(f"{ADOPTED}{pid}")
        if known is not None and known.record.watched:
            return known.record  # also after its end
        main = procfs.identity(pid)
        if main is None or not procfs.alive(main):
            raise RequestError(NOT_FOUND, f"there is no process {pid}")
        program = Found(adopted.KIND_LOG, main, (main,), recognising.Recognised(""), command(pid), procfs.owner(pid))
        return dataclasses.replace(_record(f"{ADOPTED}{pid}", program, log=log), watched=True)


def _record(name: str, program: Found, log: Optional[str] = None) -> Adopted:
    """The record of a program that was just found."""
    what, main = program.what, program.main
    otherwise = {
        adopted.KIND_SERVER: "vllm", adopted.KIND_TRAINING: "training", adopted.KIND_ORPHAN: "orphaned-engine",
        adopted.KIND_ENGINE: "engine",
    }.get(program.kind, "process")  # fmt: skip
    output = _absolute(what.output, main.pid)
    started = started_wall(main)
    return Adopted(
        id=name,
        name=recognising.safe_name(output if program.kind == adopted.KIND_TRAINING else what.model, otherwise),
        kind=program.kind,
        state=jobs.RUNNING,
        main=main,
        processes=program.processes,
        user=_user(program.uid),
        own=_is_own(program.uid),
        command_line=recognising.redact(program.argv) if program.argv is not None else None,
        cwd=_cwd(main.pid),
        started=started,
        seconds=None if started is None else max(0.0, time.time() - started),
        model=what.model,
        output=output,
        tensor_parallel=what.tensor_parallel,
        log=log,
        log_note="as asked" if log else "",
        watched=log is not None,
    )


def _is_own(uid: Optional[int]) -> bool:
    """Whether this user may end a process of that user."""
    return uid is not None and os.geteuid() in (0, uid)


def _fitted(records: Sequence[Adopted], unseen: int, left_out: int) -> AdoptedList:
    """As many records as fit into a frame, in their order."""
    budget = LIST_BYTES
    kept = []
    for record in records:
        budget -= len(json.dumps(to_wire(record), separators=(",", ":"))) + 1
        if budget < 0:
            break
        kept.append(record)
    return AdoptedList(tuple(kept), unseen, left_out + len(records) - len(kept))


def _merged(known: Adopted, asked: Adopted) -> Adopted:
    """What was found of a process, with the log that somebody names for it."""
    return dataclasses.replace(known, log=asked.log or known.log, log_note=asked.log_note, watched=True)


def _log_path(log: str) -> str:
    """The file itself, links resolved.

    :raises RequestError: when it is no regular file that can be read.
    """
    if not os.path.isabs(log):
        raise RequestError(BAD_ARGUMENT, f"the log {log} is not an absolute path")
    path = os.path.realpath(log)
    if not os.path.exists(path):
        raise RequestError(NOT_FOUND, f"there is no file {log}")
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise RequestError(FAILED, f"{log} is not a file that can be read")
    return path


def _absolute(path: Optional[str], pid: int) -> Optional[str]:
    if path is None or os.path.isabs(path):
        return path
    cwd = _cwd(pid)
    return os.path.join(cwd, path) if cwd else path


def _cwd(pid: int) -> Optional[str]:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def _user(uid: Optional[int]) -> Optional[str]:
    if uid is None:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
