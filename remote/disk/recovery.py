"""After a crash: what every step that was announced and not told has really done, found out from the disk.

A rename has happened or not, so each item is either in its place or in the trash; a trim of which one part was moved is
put back. What came into the trash unchecked is checked now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from remote.disk.commit import ended, roll_back
from remote.disk.ground import Ground
from remote.disk.receipts import PRUNE, UNDO, Entry, Outcome, Standing
from remote.disk.restore import put_back
from remote.disk.trash import ELSE, FAILURES, NOWHERE, PLACE, TRASH, Trash, explained
from remote.journal import Journal
from remote.protocol import trash

BY = "recovery after a crash"


def mend(ground: Ground, journal: Journal, standings: Mapping[str, Standing]) -> dict[str, Standing]:
    """Ends the steps of prune and undo that were cut short; the caller holds the lock, so nobody is at work on them.

    A purge that was cut short is left to the next purge, which goes on with it.

    :raises RequestError: where the trash cannot be opened.
    """
    mended = dict(standings)
    for standing in standings.values():
        if standing.cut in (PRUNE, UNDO):
            mended[standing.id] = _mended(ground, journal, standing)
    return mended


def _mended(ground: Ground, journal: Journal, standing: Standing) -> Standing:
    settle = _after_prune if standing.cut == PRUNE else _after_undo
    pending = (trash.INTENT, trash.TRASHED)
    with Trash(ground, create=True, boot=standing.line.boot_id) as bin_:
        outcomes = tuple(
            settle(bin_, entry) if outcome.state in pending else outcome
            for entry, outcome in zip(standing.intent.entries, standing.outcomes)
        )
        bin_.sync()
    return ended(journal, replace(standing, outcomes=outcomes, cut=""), standing.cut, BY)


def _after_prune(bin_: Trash, entry: Entry) -> Outcome:
    for move in entry.moves:
        if bin_.where(move) == ELSE:
            try:
                bin_.return_foreign(move)
            except FAILURES as error:
                return Outcome(trash.REFUSED, f"another thing lies in the trash as {move.name}: {explained(error)}")
    places = [bin_.where(move) for move in entry.moves]
    in_trash = [move for move, place in zip(entry.moves, places) if place == TRASH]
    if not in_trash:
        gone = " and is no longer in its place" if NOWHERE in places else ""
        return Outcome(trash.ROLLED_BACK, f"it was not moved before the crash{gone}")
    if len(in_trash) < len(entry.moves):
        return _back(bin_, entry, "only a part of it was moved before the crash")
    try:
        for move in in_trash:
            bin_.check_in_trash(move)
    except FAILURES as error:
        return _back(bin_, entry, explained(error))
    return Outcome(trash.TRASHED)


def _back(bin_: Trash, entry: Entry, problem: str) -> Outcome:
    done = [move for move in entry.moves if bin_.where(move) == TRASH]
    outcome = roll_back(bin_, done, entry, problem)
    return replace(outcome, state=trash.ROLLED_BACK) if outcome.state == trash.REFUSED else outcome


def _after_undo(bin_: Trash, entry: Entry) -> Outcome:
    places = [bin_.where(move) for move in entry.moves]
    if all(place == TRASH for place in places):
        return Outcome(trash.TRASHED, "it was not put back before the crash")
    if all(place == PLACE for place in places):
        return Outcome(trash.RESTORED)
    return put_back(bin_, entry)
