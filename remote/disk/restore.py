"""Undo: the same inodes back at the same names, or a refusal that overwrites nothing."""

from __future__ import annotations

from dataclasses import replace

from remote.disk.commit import ended
from remote.disk.ground import Ground
from remote.disk.receipts import EVENT_BEGUN, UNDO, Entry, Move, Outcome, Standing, Step
from remote.disk.trash import FAILURES, PLACE, Trash, explained
from remote.journal import Journal
from remote.protocol import trash


def undo(ground: Ground, journal: Journal, standing: Standing, requested_by: str) -> Standing:
    """Puts back every item of a receipt that lies in the trash; the caller holds the lock.

    :raises RequestError: ``failed`` where the journal cannot be written; nothing was moved then.
    """
    with Trash(ground, create=False, boot=standing.line.boot_id) as bin_:
        journal.append(
            UNDO,
            f"about to put back {standing.id}",
            requested_by,
            standing.id,
            event=EVENT_BEGUN,
            data=Step(UNDO),
        )
        outcomes = tuple(
            put_back(bin_, entry) if outcome.state == trash.TRASHED else outcome
            for entry, outcome in zip(standing.intent.entries, standing.outcomes)
        )
        bin_.sync()
    return ended(journal, replace(standing, outcomes=outcomes), UNDO, requested_by)


def put_back(bin_: Trash, entry: Entry) -> Outcome:
    """Puts an item back, wholly or not at all; what is at its place already counts as put back."""
    done: list[Move] = []
    try:
        for move in entry.moves:
            if bin_.where(move) != PLACE:
                bin_.put_back(move)
                done.append(move)
    except FAILURES as error:
        problem = explained(error)
        for move in reversed(done):
            try:
                bin_.take_again(move)
            except FAILURES as again:
                problem += f"; and {move.source} is back in its place: {explained(again)}"
        return Outcome(trash.TRASHED, problem)
    return Outcome(trash.RESTORED)
