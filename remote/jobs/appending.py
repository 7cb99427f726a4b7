"""Files of JSON lines that the runner appends to. A full disk must never end a stage, so nothing here raises."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from typing import Any, Callable, Optional

from remote.protocol.codec import to_wire
from remote.protocol.jobs import JobEvent

MAX_PENDING_EVENTS = 500


class LineFile:
    """Appends whole lines to a file and repairs the end after a write that a full disk cut."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem = ""  # why the last write failed, empty after one that worked
        self._cut = False

    def append(self, data: Any) -> bool:
        """Whether the line is in the file."""
        line = json.dumps(to_wire(data), separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        try:
            descriptor = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            )
            try:
                if self._cut:
                    line = b"\n" + line
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.problem = f"{os.path.basename(self.path)} cannot be written: {error.strerror}"
            return False
        self._cut = written < len(line)
        self.problem = f"{os.path.basename(self.path)} was cut: the disk is full" if self._cut else ""
        return not self._cut


class EventLog:
    """``events.jsonl``: what happened to the job, numbered 1, 2, 3. What cannot be written now is written later."""

    def __init__(self, path: str, after: int = 0, wall: Callable[[], float] = time.time) -> None:
        self._file = LineFile(path)
        self._wall = wall
        self._pending: deque[JobEvent] = deque()
        self.seq = after

    @property
    def problem(self) -> str:
        return self._file.problem

    def add(self, kind: str, text: str, data: Optional[dict[str, Any]] = None) -> None:
        """Appends an event. Beyond a bound, with the disk full all the while, events are no longer kept."""
        if len(self._pending) < MAX_PENDING_EVENTS:
            self.seq += 1
            self._pending.append(JobEvent(self.seq, self._wall(), kind, text, data or {}))
        self.flush()

    def flush(self) -> bool:
        """Whether everything is in the file."""
        while self._pending and self._file.append(self._pending[0]):
            self._pending.popleft()
        return not self._pending


class ThinningFile:
    """Lines at most once in ``interval`` seconds, in a file of bounded size.

    When the file passes ``max_bytes``, every second line goes and the interval doubles: a job of weeks keeps its whole
    history, coarser.
    """

    def __init__(self, path: str, interval: float, max_bytes: int) -> None:
        self._file = LineFile(path)
        self.interval = interval
        self._max_bytes = max_bytes
        self._last: Optional[float] = None

    def due(self, mono: float) -> bool:
        """Whether a line may be written now."""
        return self._last is None or mono - self._last >= self.interval

    def append(self, mono: float, data: Any) -> None:
        """Writes a line at the time ``mono``, whether or not one is due."""
        self._last = mono
        if self._file.append(data):
            self._bound()

    def _bound(self) -> None:
        path = self._file.path
        try:
            if os.stat(path).st_size <= self._max_bytes:
                return
            with open(path, "rb") as file:
                lines = file.readlines()
            with open(path + ".new", "wb") as file:
                file.writelines(lines[::2])
            os.replace(path + ".new", path)
        except OSError:
            return  # the next line tries again
        self.interval *= 2
