"""The runner's view of the stage's log: its lines through the watcher of the stage, for progress and failures."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Optional, Protocol

from remote.jobs.appending import ThinningFile
from remote.protocol.jobs import JobSpec
from remote.protocol.progress import Failure, Phase, Progress
from remote.watch import failures, vllm_load
from remote.watch.follow import LineSplitter, LogFollower

PIECE_BYTES = 64 * 1024
TURN_SECONDS = 0.1  # keeps a turn of the runner's loop short while a stage floods its log
DRAIN_SECONDS = 5.0
TAIL_BYTES = 256 * 1024
INDEX_BYTES = 2 * 1024 * 1024


class Watcher(Protocol):
    """Progress from the lines of a log. Times are seconds since the start of the job.

    ``version`` is the release of the program that writes the log, empty while that is not known.
    """

    @property
    def version(self) -> str: ...

    def read_line(self, line: str, at: float) -> None: ...

    def progress(self, at: float, healthy: bool) -> Progress: ...


class VllmLoad:
    """The watcher of stages that load a model into vLLM."""

    def __init__(self) -> None:
        self._state = vllm_load.initial()

    @property
    def version(self) -> str:
        return self._state.version

    def read_line(self, line: str, at: float) -> None:
        self._state = vllm_load.read_line(self._state, line, at)

    def progress(self, at: float, healthy: bool) -> Progress:
        if healthy:
            self._state = vllm_load.read_health(self._state, at)
        return vllm_load.progress(self._state, at, healthy)


class Plain:
    """The watcher of stages whose log carries no progress: one phase for the whole run."""

    version = ""

    def read_line(self, line: str, at: float) -> None:
        return

    def progress(self, at: float, healthy: bool) -> Progress:
        return Progress(phase="running", phases=(Phase("running", 0.0),), ready=healthy)


EVENTS = "events"
"""The watcher of stages that write events: their log is searched for failures only, see ``eventwatch``."""

WATCHERS = {"vllm_load": VllmLoad}


def watcher_for(spec: JobSpec) -> Watcher:
    """The watcher that the spec names; a name from a newer version gives the plain one."""
    return WATCHERS.get(spec.watcher, Plain)()


class LogWatch:
    """Follows a stage's log: feeds the watcher and the search for failures, and writes the log's time index.

    A line is read when it is complete; a last one without its end is read when the stage has ended.
    """

    def __init__(self, log: str, index: str, watcher: Watcher) -> None:
        self._log = log
        self._follower = LogFollower(log, PIECE_BYTES)
        self._index = ThinningFile(index, interval=1.0, max_bytes=INDEX_BYTES)
        self._indexed = 0
        self._watcher = watcher
        self._scan: Any = failures.initial()

    def turn(self, mono: float, at: float) -> None:
        """Reads what is new, for a bounded time."""
        self._write_index(mono)
        self._feed_for(TURN_SECONDS, at)

    def drain(self, at: float) -> None:
        """Reads what is left when the stage has ended; of a flood that would take too long, its end."""
        if self._feed_for(DRAIN_SECONDS, at):
            self._feed(self._follower.flush(), at)
        else:
            self._read_tail(at)

    def progress(self, at: float, healthy: bool) -> Progress:
        return self._watcher.progress(at, healthy)

    @property
    def version(self) -> str:
        """The release that the log tells of, empty while it does not."""
        return self._watcher.version

    @property
    def offset(self) -> int:
        """Bytes of the log that were read."""
        return self._follower.offset

    def failure(self, code: Optional[int], signal: Optional[int], kernel: Optional[str] = None) -> Optional[Failure]:
        """The reason that the log gives for the end of the stage, None where it gives none.

        :param kernel: the kernel's word about kills for memory, see ``failures.verdict``.
        """
        return failures.verdict(self._scan, code, signal, kernel)

    def _feed_for(self, seconds: float, at: float) -> bool:
        """Reads until there is nothing more or the time is over; whether there is nothing more."""
        deadline = time.monotonic() + seconds
        while True:
            before = self._follower.offset
            self._feed(self._follower.poll(), at)
            if self._follower.offset == before:
                return True
            if time.monotonic() > deadline:
                return False

    def _feed(self, lines: Sequence[str], at: float) -> None:
        for line in lines:
            self._watcher.read_line(line, at)
            self._scan = failures.read_line(self._scan, line)

    def _read_tail(self, at: float) -> None:
        try:
            with open(self._log, "rb") as file:
                file.seek(-min(TAIL_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
                splitter = LineSplitter()
                lines = splitter.feed(file.read(TAIL_BYTES)) + splitter.flush()
        except OSError:
            return
        self._feed(lines[1:], at)

    def _write_index(self, mono: float) -> None:
        """One entry ``[wall, size]``: at that time the log had so many bytes."""
        if not self._index.due(mono):
            return
        try:
            size = os.stat(self._log).st_size
        except OSError:
            return
        if size != self._indexed:
            self._indexed = size
            self._index.append(mono, [time.time(), size])
