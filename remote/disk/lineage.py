"""Which runs and data sets have been superseded, and by what. Pure.

A run is superseded by a newer one for the same verifier that did better, or, where the results cannot be compared, that
was trained on more samples. A data set is superseded when every run that used it is, or when a newer one holds all its
prompts and at least as many samples. Anything less is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from remote.disk import artifacts
from remote.disk.evidence import Snapshot, Thing
from remote.disk.references import MANIFEST, SETTING, Reference, inside
from remote.disk.retention import complete
from remote.protocol.artifacts import Checkpoint, Reason


@dataclass(frozen=True)
class Lineage:
    """What has taken whose place.

    :param superseded: the finding by the path of a run, data set or draft.
    """

    superseded: dict[str, Reason] = field(default_factory=dict)

    def stale(self, reference: Reference, snapshot: Snapshot) -> bool:
        """Whether the one that refers is itself superseded, so that its reference protects nothing."""
        owners = (thing for thing in snapshot.things if thing.path in self.superseded)
        return bool(reference.owner) and any(inside(reference.owner, thing.real) for thing in owners)


def lineage(snapshot: Snapshot) -> Lineage:
    """The lineage of everything in a snapshot."""
    found = Lineage()
    runs = [thing for thing in snapshot.things if thing.kind == artifacts.RUN and thing.run]
    for thing in runs:
        reason = _superseded_run(thing, runs, snapshot)
        if reason:
            found.superseded[thing.path] = reason
    sets = [thing for thing in snapshot.things if thing.kind in (artifacts.DATA, artifacts.PREPARED)]
    orphans: dict[str, Reason] = {}
    for thing in (*sets, *(one for one in snapshot.things if one.kind == artifacts.HIDDEN_STATES)):
        if not thing.found.parent:
            reason = _orphaned(thing, found, snapshot) or _outgrown(thing, sets, found, snapshot)
            if reason:
                orphans[thing.path] = reason
    found.superseded.update(orphans)
    for thing in snapshot.things:
        if thing.found.parent in orphans:
            found.superseded[thing.path] = orphans[thing.found.parent]
        elif thing.kind == artifacts.DRAFT:
            reason = _earlier_export(thing, snapshot)
            if reason:
                found.superseded[thing.path] = reason
    return found


def best_of(thing: Thing) -> Optional[Checkpoint]:
    """The checkpoint that stands for a run: its best, else the newest complete one."""
    items = thing.run.checkpoints if thing.run else ()
    return next((item for item in items if item.best), None) or next((item for item in items if item.newest), None)


def _superseded_run(thing: Thing, runs: list[Thing], snapshot: Snapshot) -> Optional[Reason]:
    mine = best_of(thing)
    candidates = [other for other in runs if other is not thing and _succeeds(other, thing)]
    for other in sorted(candidates, key=_made, reverse=True):
        theirs = best_of(other)
        why = _better(other, theirs, thing, mine, snapshot) if theirs else ""
        if why:
            text = f"superseded: {_name(other)}, newer and for the same verifier, has {why}"
            return Reason("superseded", text, source=other.path, observed=snapshot.now)
    return None


def _succeeds(newer: Thing, older: Thing) -> bool:
    if not newer.run or not older.run or not newer.verifier or newer.verifier != older.verifier:
        return False
    kinds = [thing.run.settings.get("speculator_type") for thing in (newer, older) if thing.run]
    return len(set(kinds) - {None}) < 2 and _made(newer) > _made(older)


def _better(other: Thing, theirs: Checkpoint, thing: Thing, mine: Optional[Checkpoint], snapshot: Snapshot) -> str:
    """What the other run has that this one has not; empty where it did not do better."""
    if not complete(theirs):
        return ""
    if mine is None or not complete(mine):
        return "a complete checkpoint; this one has none"
    if theirs.predicted_acceptance is not None and mine.predicted_acceptance is not None:
        if theirs.predicted_acceptance <= mine.predicted_acceptance:
            return ""
        return f"predicted acceptance {theirs.predicted_acceptance:.2f} against {mine.predicted_acceptance:.2f}"
    if theirs.validation_loss is not None and mine.validation_loss is not None:
        if theirs.validation_loss >= mine.validation_loss:
            return ""
        return f"validation loss {theirs.validation_loss:.3f} against {mine.validation_loss:.3f}"
    ours, others = (_samples(one, snapshot) for one in (thing, other))
    if ours and others and others > ours:
        return f"{others:,} samples to train on against {ours:,}; no results to compare"
    return ""


def _samples(run: Thing, snapshot: Snapshot) -> Optional[int]:
    """The samples of the largest data set that a run's settings name."""
    named = [item.target for item in snapshot.references if item.kind == SETTING and inside(item.owner, run.real)]
    counts = [
        thing.found.samples
        for thing in snapshot.things
        if thing.found.samples and any(inside(thing.real, target) or inside(target, thing.real) for target in named)
    ]
    return max(counts, default=None)


def _orphaned(thing: Thing, found: Lineage, snapshot: Snapshot) -> Optional[Reason]:
    """All who ever used the data set are superseded."""
    users = _users(thing, snapshot)
    if not users or not all(found.stale(user, snapshot) for user in users):
        return None
    names = sorted({_owner(user, snapshot) for user in users})
    text = (
        f"orphaned: only {' and '.join(names)} used it, and {'that is' if len(names) == 1 else 'those are'} superseded"
    )
    return Reason("orphaned", text, source=users[0].source, observed=snapshot.now)


def _outgrown(thing: Thing, sets: list[Thing], found: Lineage, snapshot: Snapshot) -> Optional[Reason]:
    """A newer data set holds all its prompts."""
    if not thing.prompts or any(not found.stale(user, snapshot) for user in _users(thing, snapshot)):
        return None
    for other in sets:
        if other is thing or not other.prompts or (other.modified or 0.0) <= (thing.modified or 0.0):
            continue
        if thing.prompts < other.prompts and (other.found.samples or 0) >= (thing.found.samples or 0):
            text = f"superseded: all its {len(thing.prompts):,} prompts are in {_name(other)}, which is newer"
            return Reason("superseded", text, source=other.path, observed=snapshot.now)
    return None


def _earlier_export(thing: Thing, snapshot: Snapshot) -> Optional[Reason]:
    """``DRAFT_before_TIME`` is what the export stage makes of a draft that it replaces."""
    present, before, _ = thing.path.rpartition("_before_")
    if before and any(other.path == present and other.kind == artifacts.DRAFT for other in snapshot.things):
        return Reason(
            "superseded", f"superseded: {present} was exported after it", source=present, observed=snapshot.now
        )
    return None


def _users(thing: Thing, snapshot: Snapshot) -> list[Reference]:
    return [
        item
        for item in snapshot.references
        if item.kind in (SETTING, MANIFEST) and inside(item.target, thing.real) and not inside(item.owner, thing.real)
    ]


def _owner(reference: Reference, snapshot: Snapshot) -> str:
    """The name of the artifact that a referring file belongs to."""
    owners = [thing for thing in snapshot.things if inside(reference.owner, thing.real) and not thing.found.parent]
    return _name(owners[0]) if owners else reference.by


def _name(thing: Thing) -> str:
    return thing.path.rstrip("/").rpartition("/")[2]


def _made(thing: Thing) -> float:
    """When a run made its newest checkpoint; it was superseded by what came later, not by what was touched later."""
    items = thing.run.checkpoints if thing.run else ()
    return max((item.artifact.modified or 0.0 for item in items), default=0.0)
