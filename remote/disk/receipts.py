"""Receipts, as the lines of the journal tell them. The journal is the only record; everything here is pure.

A receipt begins with an intent that names every inode to be moved, and each step of its life is announced before its
effect and told after it: ``prune``, ``undo`` and ``purge``. A step without its end was cut short by a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from remote.journal import Line
from remote.protocol import trash
from remote.protocol.codec import from_wire
from remote.protocol.errors import ProtocolError
from remote.protocol.trash import Freed, Receipt, ReceiptItem

KEPT_SECONDS = 24 * 3600.0
"""How long a receipt can be undone before it is purged unasked."""

SETTLED_SECONDS = 600.0
"""After a boot the wall clock is not trusted to end anything for so long: it may not have been set yet."""

EVENT_INTENT = "intent"
EVENT_BEGUN = "begun"
EVENT_ENDED = "ended"

PRUNE = "prune"
UNDO = "undo"
PURGE = "purge"


@dataclass(frozen=True)
class Move:
    """One rename: of a directory or file of the workspace into the receipt's own folder in the trash.

    :param source: its path below the workspace.  :param name: its name in the trash.
    :param body, content: fingerprints of ``remote.disk.manifest``, which a rename does not change.
    """

    source: str
    name: str
    device: int
    inode: int
    directory: bool
    files: int
    fingerprint: str
    body: str
    content: str


@dataclass(frozen=True)
class Entry:
    """An item of a plan and the renames that it takes: one for the whole, several for a trim."""

    path: str
    kind: str
    level: str
    allocated: int
    exclusive: int
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class Intent:
    """What is about to be moved."""

    plan: str
    key: str
    exclusive: int
    entries: tuple[Entry, ...]
    why: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of one entry: a state of ``remote.protocol.trash`` and, where it is not as was wished, why."""

    state: str
    problem: str = ""


@dataclass(frozen=True)
class Step:
    """The data of a line that begins or ends a step; the outcomes are of all entries in their order, or none where the
    step changes none of them yet."""

    step: str
    outcomes: tuple[Outcome, ...] = ()
    freed: Optional[Freed] = None


@dataclass(frozen=True)
class Standing:
    """A receipt as it stands.

    :param cut: the step that was begun and has not ended; empty where all have.
    """

    id: str
    intent: Intent
    line: Line
    outcomes: tuple[Outcome, ...]
    freed: Freed
    cut: str = ""

    @property
    def in_trash(self) -> bool:
        """Whether anything of it lies, or may lie, in the trash."""
        return any(outcome.state in (trash.INTENT, trash.TRASHED, trash.PURGING) for outcome in self.outcomes)

    @property
    def allocated(self) -> int:
        """Bytes on disk that lie in the trash."""
        waiting = (trash.TRASHED, trash.PURGING)
        return sum(
            entry.allocated for entry, outcome in zip(self.intent.entries, self.outcomes) if outcome.state in waiting
        )


class Ledger:
    """The receipts that a journal tells of, told further with each line that is new. Can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: Sequence[Line] = ()
        self._found: dict[str, Standing] = {}

    def standings(self, lines: Sequence[Line]) -> dict[str, Standing]:
        """The receipts in the order of their intents.

        :param lines: all lines of the journal; of those that were here before only the new ones are looked at.
        """
        with self._lock:
            known = len(self._lines)
            if known and (len(lines) < known or lines[known - 1] is not self._lines[-1]):
                self._found, known = {}, 0  # the journal was read anew
            for line in lines[known:]:
                self._take(line)
            self._lines = lines
            return dict(self._found)

    def _take(self, line: Line) -> None:
        if line.event == EVENT_INTENT:
            intent = _decoded(Intent, line.data)
            if intent is not None and line.receipt not in self._found:
                outcomes = tuple(Outcome(trash.INTENT) for _ in intent.entries)
                standing = Standing(line.receipt, intent, line, outcomes, Freed(intent.exclusive), PRUNE)
                self._found[line.receipt] = standing
        elif line.event in (EVENT_BEGUN, EVENT_ENDED) and line.receipt in self._found:
            step = _decoded(Step, line.data)
            if step is not None:
                self._found[line.receipt] = _after(self._found[line.receipt], line.event, step)


def receipt(standing: Standing) -> Receipt:
    """The receipt for the console."""
    entries = zip(standing.intent.entries, standing.outcomes)
    items = tuple(
        ReceiptItem(entry.path, outcome.state, entry.allocated, entry.kind, entry.level, outcome.problem)
        for entry, outcome in entries
    )
    state = _state([outcome.state for outcome in standing.outcomes])
    return Receipt(
        id=standing.id,
        state=state,
        items=items,
        freed=standing.freed,
        created=standing.line.wall,
        expires=standing.line.wall + KEPT_SECONDS if standing.in_trash else None,
        who=standing.line.who,
        why=standing.intent.why,
    )


def expired(line: Line, wall: float, boot_id: str, up: float) -> bool:
    """Whether a receipt with this intent has been kept for long enough.

    In the boot that made it the clock that does not jump decides; after that the wall clock does, which is not believed
    in the first minutes of a boot.
    """
    if line.boot_id == boot_id:
        return up - line.uptime >= KEPT_SECONDS
    return up >= SETTLED_SECONDS and wall - line.wall >= KEPT_SECONDS


def _after(standing: Standing, event: str, step: Step) -> Standing:
    if event == EVENT_BEGUN:
        outcomes = step.outcomes if len(step.outcomes) == len(standing.outcomes) else standing.outcomes
        return replace(standing, outcomes=outcomes, cut=step.step)
    if len(step.outcomes) != len(standing.outcomes):
        return standing
    return replace(standing, outcomes=step.outcomes, freed=step.freed or standing.freed, cut="")


def _state(states: Sequence[str]) -> str:
    """One word for all: what still lies in the trash comes first."""
    order = (trash.INTENT, trash.PURGING, trash.TRASHED, trash.RESTORED, trash.PURGED, trash.ROLLED_BACK)
    return next((state for state in order if state in states), trash.REFUSED)


def _decoded(kind: Any, data: Any) -> Any:
    try:
        return from_wire(kind, data)
    except ProtocolError:
        return None
