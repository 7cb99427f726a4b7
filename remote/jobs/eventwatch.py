"""The runner's view of a stage that writes events: its progress file, read as it grows."""

from __future__ import annotations

import os
from typing import Optional

from pipeline.plan import events
from pipeline.plan.events import SERVER_DIED, EpochSaved
from remote.protocol.progress import Evidence, Failure, Progress
from remote.watch import stage_events
from remote.watch.follow import LogFollower

PIECE_BYTES = 256 * 1024
SECONDS = 1.0
"""Between two estimates: each of them is written into ``state.json``."""

MAX_PIECES = 40  # a turn; what is left is read in the next one


class EventWatch:
    """Follows ``progress.jsonl`` of a job directory. Times are seconds since the start of the job."""

    def __init__(self, directory: str) -> None:
        self._follower = LogFollower(os.path.join(directory, events.FILE), PIECE_BYTES)
        self._state = stage_events.initial()
        self._told = 0
        self._shown: Optional[Progress] = None
        self._shown_of = self._state
        self._looked = 0.0

    def turn(self, at: float) -> None:
        """Reads what is new."""
        for _ in range(MAX_PIECES):
            before = self._follower.offset
            for line in self._follower.poll():
                self._state = stage_events.read_line(self._state, line, at)
            if self._follower.offset == before:
                return

    def progress(self, done: bool, at: Optional[float] = None) -> Progress:
        """How far the stage is, with what is left ``at`` that time, which changes once a second; None at its end."""
        known = self._shown is not None and self._state is self._shown_of
        if self._shown is None or not known or at is None or at - self._looked >= SECONDS:
            self._shown, self._shown_of = stage_events.progress(self._state, done, at), self._state
            self._looked = at or 0.0
        return self._shown

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the stage has proven so far."""
        return self._state.evidence

    @property
    def saved(self) -> tuple[EpochSaved, ...]:
        """The epochs whose checkpoints are on the disk."""
        return self._state.saved

    def explained(self, found: Optional[Failure]) -> Optional[Failure]:
        """Why the stage ended: its own word, but for a server that died; of that the log knows more.

        :param found: the reason that the log gives.
        """
        told = self._state.failure
        if told is None:
            return found
        if told.klass == SERVER_DIED and found is not None and found.klass not in ("gone", "exception"):
            return found
        return told

    def news(self) -> tuple[tuple[str, str], ...]:
        """Level and text of the sentences that have come since the last call."""
        fresh = self._state.messages[self._told :]
        self._told = len(self._state.messages)
        return fresh
