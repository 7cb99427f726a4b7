"""What protects a thing on the disk: each guard says why, from what, and when that was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from remote.disk import artifacts
from remote.disk.evidence import GRACE_SECONDS, Snapshot, Thing
from remote.disk.lineage import Lineage, best_of
from remote.disk.references import LINK, MANIFEST, PROCESS, SETTING, Reference, below_name, inside
from remote.disk.retention import complete, mixed, protected
from remote.disk.uses import HELD, UNCLEAR, WRITTEN
from remote.protocol.artifacts import Reason

TINY_SHARE = 0.01
"""A data set of less than this share of the largest run costs nothing to keep."""

_VALIDATION = ("val", "eval", "test", "held_out")


def guards(thing: Thing, snapshot: Snapshot, found: Lineage) -> Iterator[Reason]:
    """Everything that protects a thing. A run is not protected by what protects its checkpoints from one another."""
    yield from _own(thing, snapshot)
    yield from _use(thing, snapshot)
    yield from _surroundings(thing, snapshot)
    yield from _pins(thing, snapshot)
    yield from _references(thing, snapshot, found)
    if thing.kind == artifacts.CHECKPOINT and thing.run and thing.checkpoint:
        yield from protected(thing.run.checkpoints, snapshot.now).get(thing.path, ())
        if mixed(thing.run.checkpoints):
            text = "kept: numbers and times of the checkpoints contradict each other; two runs may have written here"
            yield Reason("mixed_runs", text, True, thing.run.path, snapshot.now)
    elif thing.kind == artifacts.RUN:
        yield from _current(thing, snapshot, found)
    elif thing.kind == artifacts.LOG:
        detail = f" ({thing.found.detail})" if thing.found.detail else ""
        yield Reason(
            "irreplaceable", f"kept: what happened cannot be recorded again{detail}", True, thing.path, snapshot.now
        )
    elif thing.kind in (artifacts.DRAFT, artifacts.REPORT) and thing.path not in found.superseded:
        yield Reason("product", "kept: a result of the pipeline", True, thing.path, snapshot.now)
    elif thing.kind in (artifacts.UNKNOWN, artifacts.FOLDER):
        text = f"not recognised{': ' + thing.found.detail if thing.found.detail else ''}"
        yield Reason("unknown_layout", text, True, thing.path, snapshot.now)


def _own(thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    if thing.kind == artifacts.OWN:
        text = "kept: eagle-console's own records; the trash is emptied by `purge`"
        yield Reason("own", text, True, thing.path, snapshot.now)
    elif not thing.found.movable:
        yield Reason("outside", "it lies outside the workspace, where nothing is moved", True, thing.path, snapshot.now)


def _use(thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    use = thing.use
    if use is not None and use.state in (HELD, WRITTEN):
        rule, what = ("being_written", "being written") if use.state == WRITTEN else ("in_use", "in use")
        yield Reason(rule, f"kept: {what}: {use.why}", True, "kernel lease" if use.proof else "/proc", snapshot.now)
    elif use is not None and use.state == UNCLEAR:
        yield Reason("unproven", f"its disuse cannot be proven: {use.why}", True, "kernel lease", snapshot.now)
    age = None if thing.modified is None else snapshot.now - thing.modified
    if age is not None and age < GRACE_SECONDS and not (use and use.state == WRITTEN):
        text = f"kept: changed {max(0, round(age))} s ago, so that it may still be being written"
        yield Reason("being_written", text, True, "modification time", snapshot.now)


def _surroundings(thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    if thing.owner is not None:
        yield Reason("foreign_owner", f"kept: it belongs to {thing.owner}", True, "owner", snapshot.now)
    mounted = next((point for point in sorted(snapshot.mounts) if inside(point, thing.real)), None)
    if mounted is not None and thing.kind != artifacts.OWN:
        text = f"kept: something is mounted at {below_name(mounted, snapshot.workspace)}"
        yield Reason("mount_inside", text, True, "/proc/self/mountinfo", snapshot.now)


def _pins(thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    for path, who in sorted(snapshot.pins.items()):
        if inside(path, thing.real) or inside(thing.real, path):
            where = "" if path == thing.real else f" {below_name(path, snapshot.workspace)}"
            yield Reason("pinned", f"kept: {who or 'a person'} pinned{where or ' it'}", True, "pins", snapshot.now)
            return


def _references(thing: Thing, snapshot: Snapshot, found: Lineage) -> Iterator[Reason]:
    """The first reference of each kind, those of living processes first."""
    seen = set()
    for item in sorted(snapshot.references, key=lambda one: (not one.alive, one.by, one.role)):
        if item.kind in seen or not _concerns(item, thing) or found.stale(item, snapshot):
            continue
        if thing.kind == artifacts.HIDDEN_STATES and not item.alive and _finished(item, snapshot):
            continue
        seen.add(item.kind)
        yield _reference(item, thing, snapshot)


def _concerns(item: Reference, thing: Thing) -> bool:
    """Whether a reference needs the thing.

    Who names something inside needs what is around it. Who names the whole needs its parts, but for the checkpoints of
    a run: a trainer that writes into it does not read the old ones, and a link to it is not one to each of them.
    """
    if item.owner and inside(item.owner, thing.real):
        return False
    if item.kind == MANIFEST and thing.kind == artifacts.RUN:  # an exported draft stands alone
        return False
    if inside(item.target, thing.real):
        return True
    if thing.kind == artifacts.CHECKPOINT or item.kind == LINK or not thing.found.parent:
        return False
    whole = thing.real[: len(thing.real) - len(thing.path) + len(thing.found.parent)]
    return inside(thing.real, item.target) and inside(item.target, whole)


def _reference(item: Reference, thing: Thing, snapshot: Snapshot) -> Reason:
    name = "" if item.target == thing.real else f" {below_name(item.target, snapshot.workspace)} of it"
    if item.alive:
        how = f" ({item.source}{f', {item.role}' if item.role and item.kind == PROCESS else ''})"
        rule = "run_alive" if thing.kind == artifacts.RUN else "referenced"
        return Reason(rule, f"kept: {item.by} names{name or ' it'}{how}", True, item.source, snapshot.now)
    if item.kind == LINK:
        link = below_name(item.source, snapshot.workspace)
        return Reason("referenced", f"kept: the link {link} points to{name or ' it'}", True, item.source, snapshot.now)
    validation = item.kind == SETTING and any(word in item.role.lower() for word in _VALIDATION)
    if validation and _tiny(thing, snapshot):
        text = f"kept: tiny reference, {gigabytes(thing.size.apparent)}, used by validation of {item.by} ({item.role})"
        return Reason("tiny_reference", text, True, item.source, snapshot.now)
    what = f"as {item.role}" if item.kind == SETTING else f"made by {item.role} from it"
    return Reason("referenced", f"kept: {item.by} uses{name or ' it'} ({what})", True, item.source, snapshot.now)


def _tiny(thing: Thing, snapshot: Snapshot) -> bool:
    largest = max((one.size.apparent for one in snapshot.things if one.kind == artifacts.RUN), default=0)
    return thing.size.apparent < TINY_SHARE * largest


def _finished(item: Reference, snapshot: Snapshot) -> bool:
    owners = [thing for thing in snapshot.things if thing.kind == artifacts.RUN and inside(item.owner, thing.real)]
    return bool(owners) and all(thing.run is not None and thing.run.finished for thing in owners)


def _current(thing: Thing, snapshot: Snapshot, found: Lineage) -> Iterator[Reason]:
    """A run with a result that no other run here betters."""
    if thing.path in found.superseded or not thing.run or not any(map(complete, thing.run.checkpoints)):
        return
    best = best_of(thing)
    result = f": {best.name} is its {'best' if best.best else 'newest complete'} checkpoint" if best else ""
    text = f"kept: no other run here is known to have done better{result}"
    yield Reason("current", text, True, thing.path, snapshot.now)


def gigabytes(count: int) -> str:
    """Bytes for a sentence."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.{1 if count < 10 * size else 0}f} {unit}"
    return f"{count} B"
