"""``state.json``: the runner's latest word, kept fresh without writing more than is worth reading."""

from __future__ import annotations

import dataclasses
import time
from typing import Optional

from remote.jobs.records import write_record
from remote.protocol.jobs import JobState

MIN_SECONDS = 0.25
MAX_SECONDS = 5.0


class StateFile:
    """Replaces ``state.json`` at changes, at most four times a second, and every five seconds as a sign of life."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._written: Optional[JobState] = None
        self._last = float("-inf")
        self.problem = ""

    def offer(self, state: JobState, mono: float, at_once: bool = False) -> None:
        """Writes the state if it is time to; never raises. ``state.wall`` is set to the time of writing."""
        same = self._written is not None and dataclasses.replace(state, wall=self._written.wall) == self._written
        if not at_once and mono - self._last < (MAX_SECONDS if same else MIN_SECONDS):
            return
        self._last = mono
        stamped = dataclasses.replace(state, wall=time.time())
        try:
            write_record(self._path, stamped, durable=False)
        except OSError as error:
            self.problem = f"state.json cannot be written: {error.strerror}"
            return
        self.problem = ""
        self._written = stamped
