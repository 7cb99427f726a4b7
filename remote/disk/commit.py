"""Carrying out a plan: announced in the journal, then item by item into the trash, then told in the journal.

Every item is checked again at its moment: the same inode, the same content to the change times, used by nobody, and not
what its run needs. An item goes wholly or stays wholly; the others do not depend on it.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from remote import procfs
from remote.disk import tombstone
from remote.disk.ground import Ground
from remote.disk.manifest import Unmovable
from remote.disk.plan import PlannedItem, StoredPlan
from remote.disk.receipts import (
    EVENT_ENDED,
    EVENT_INTENT,
    PRUNE,
    Entry,
    Intent,
    Move,
    Outcome,
    Standing,
    Step,
)
from remote.disk.trash import FAILURES, TRASH, Trash, explained
from remote.journal import Journal
from remote.protocol import trash
from remote.protocol.errors import RequestError
from remote.protocol.trash import Freed

Guard = Callable[[str, str], None]
"""Raises ``Unmovable`` where the path below the workspace may not go at the level, by what is true at that moment."""


def commit(ground: Ground, journal: Journal, stored: StoredPlan, guard: Guard, requested_by: str, key: str) -> Standing:
    """Moves what the plan says into the trash; the caller holds the lock and has checked what the plan is bound to.

    :raises RequestError: ``failed`` where the journal cannot be written, ``refused`` where there is no trash; nothing
        was moved then.
    """
    receipt = f"r{secrets.token_hex(6)}"
    entries = tuple(_entry(item, receipt, index) for index, item in enumerate(stored.items))
    intent = Intent(stored.plan.id, key, stored.plan.exclusive, entries)
    with Trash(ground, create=True, boot=procfs.boot_id()) as bin_:
        line = journal.append(
            "prune",
            _announced(intent),
            requested_by,
            receipt,
            [entry.path for entry in entries],
            intent.exclusive,
            tombstone.facts(ground, [item.relative for item in stored.items]),
            EVENT_INTENT,
            intent,
        )
        outcomes = tuple(_carry_out(bin_, item.relative, entry, guard) for item, entry in zip(stored.items, entries))
        outcomes = _durable(bin_, outcomes)
    standing = Standing(receipt, intent, line, outcomes, Freed(intent.exclusive))
    return ended(journal, standing, PRUNE, requested_by)


def ended(journal: Journal, standing: Standing, step: str, requested_by: str) -> Standing:
    """Tells the end of a step in the journal. Where that cannot be written the step counts as cut short: what is true
    is then found out from the disk."""
    try:
        journal.append(
            step,
            summary(step, standing),
            requested_by,
            standing.id,
            [entry.path for entry in standing.intent.entries],
            event=EVENT_ENDED,
            data=Step(step, standing.outcomes, standing.freed),
        )
    except RequestError:
        return replace(standing, cut=step)
    return standing


def summary(step: str, standing: Standing) -> str:
    """What became of a step, as a sentence: how many items are in which state, and the first problem."""
    counts: dict[str, int] = {}
    for outcome in standing.outcomes:
        counts[outcome.state] = counts.get(outcome.state, 0) + 1
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in sorted(counts.items()))
    problem = next((outcome.problem for outcome in standing.outcomes if outcome.problem), "")
    return f"{step} of {len(standing.outcomes)}: {told}" + (f"; {problem}" if problem else "")


def move_in(bin_: Trash, entry: Entry) -> Outcome:
    """Takes an item into the trash, wholly or not at all."""
    done: list[Move] = []
    try:
        for move in entry.moves:
            bin_.take_in(move)
            done.append(move)
    except FAILURES as error:
        return roll_back(bin_, done, entry, explained(error))
    return Outcome(trash.TRASHED)


def roll_back(bin_: Trash, done: Sequence[Move], entry: Entry, problem: str) -> Outcome:
    """Puts back the part of an item that was moved before another part could not be."""
    for move in reversed(done):
        try:
            bin_.put_back(move)
        except FAILURES as error:
            problem += f"; and {move.source} could not be put back: {explained(error)}"
    left = any(bin_.where(move) == TRASH for move in entry.moves)
    return Outcome(trash.TRASHED if left else trash.REFUSED, problem)


def _carry_out(bin_: Trash, relative: str, entry: Entry, guard: Guard) -> Outcome:
    try:
        guard(relative, entry.level)
    except Unmovable as error:
        return Outcome(trash.REFUSED, str(error))
    return move_in(bin_, entry)


def _durable(bin_: Trash, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
    problem = bin_.sync()
    if not problem:
        return outcomes
    return tuple(Outcome(outcome.state, problem) if outcome.state == trash.TRASHED else outcome for outcome in outcomes)


def _entry(item: PlannedItem, receipt: str, index: int) -> Entry:
    moves = tuple(replace(move, name=f"{receipt}-{index}-{number}") for number, move in enumerate(item.moves))
    planned = item.item
    return Entry(planned.path, planned.kind, planned.level, planned.allocated, planned.exclusive, moves)


def _announced(intent: Intent) -> str:
    first = shlex.quote(intent.entries[0].path)
    more = f" and {len(intent.entries) - 1} more" if len(intent.entries) > 1 else ""
    return f"about to move {first}{more} into the trash ({intent.entries[0].level})"
