"""What may become of each thing on the disk: guards first, then findings. Pure: the same snapshot, the same verdicts.

A guard keeps, whatever else is true. Without one, a thing is stale or torn only by a finding, which says what took its
place or what is broken, and only if its disuse was proven. Age and size accuse nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from remote.disk import artifacts, rebuild
from remote.disk.evidence import Rebuild, Snapshot, Thing
from remote.disk.guards import gigabytes, guards
from remote.disk.lineage import Lineage, lineage
from remote.disk.retention import STRANGERS, WRITING, complete
from remote.disk.retention import TORN as TORN_STATE
from remote.disk.uses import FREE
from remote.protocol.artifacts import (
    KEEP,
    LEVEL_WHOLE,
    PROOF_KERNEL,
    REVIEW,
    STALE,
    TORN,
    UNKNOWN,
    Checkpoint,
    Reason,
    Verdict,
)

_TORN_RULES = frozenset({"torn", "no_checkpoint"})
_STALE_RULES = frozenset({"superseded", "orphaned", "leftover"})


def triage(snapshot: Snapshot) -> dict[str, Verdict]:
    """The verdict over each thing, by its path."""
    found = lineage(snapshot)
    return {thing.path: _verdict(thing, snapshot, found) for thing in snapshot.things}


def _verdict(thing: Thing, snapshot: Snapshot, found: Lineage) -> Verdict:
    protecting = tuple(guards(thing, snapshot, found))
    findings = tuple(_findings(thing, snapshot, found))
    cost = _rebuild(thing)
    context = tuple(_context(thing, snapshot, cost))
    reclaim = thing.checkpoint.artifact.verdict.reclaim if thing.checkpoint else {LEVEL_WHOLE: thing.size.exclusive}
    return Verdict(
        word=_word(thing, protecting, findings),
        reasons=(*protecting, *findings, *context),
        reclaim=reclaim if thing.found.movable else None,
        rebuild_minutes=cost.minutes if cost else None,
        rebuild_basis=cost.basis if cost else "",
        proof=thing.use.proof if thing.use and thing.use.state == FREE else None,
    )


def _word(thing: Thing, protecting: tuple[Reason, ...], findings: tuple[Reason, ...]) -> str:
    rules = {reason.rule for reason in protecting}
    if rules - {"unknown_layout", "unproven", "outside"}:
        return KEEP
    if "unknown_layout" in rules or "unproven" in rules:
        return UNKNOWN
    accused = {reason.rule for reason in findings}
    free = thing.use is not None and thing.use.state == FREE
    if accused & _TORN_RULES:
        return TORN if free else REVIEW
    if accused & _STALE_RULES:
        return STALE if free else REVIEW
    return REVIEW


def _findings(thing: Thing, snapshot: Snapshot, found: Lineage) -> Iterator[Reason]:
    if thing.path in found.superseded:
        yield found.superseded[thing.path]
    if thing.kind == artifacts.CHECKPOINT and thing.checkpoint and thing.run:
        yield from _checkpoint(thing.checkpoint, thing, snapshot)
    elif thing.kind == artifacts.RUN and thing.run:
        yield from _run(thing, snapshot)
    elif thing.kind == artifacts.CORE_DUMP:
        yield Reason("leftover", "a core dump: the process that it shows is gone", False, thing.path, snapshot.now)
    elif thing.kind == artifacts.SHARED_MEMORY and thing.found.detail:
        yield Reason("leftover", thing.found.detail, False, thing.path, snapshot.now)


def _checkpoint(item: Checkpoint, thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    run = thing.run
    if run is None or item.state == WRITING:
        return
    now, path = snapshot.now, thing.path
    if item.state == TORN_STATE and not item.servable and item.strangers:
        yield Reason("strangers", STRANGERS.format(item.strangers), False, path, now)
        return
    if item.state == TORN_STATE and not item.servable:
        yield Reason("torn", f"torn: {item.problem}; nothing is lost with it", False, path, now)
        return
    if item.problem:
        yield Reason("no_resume", f"{item.problem}: a trainer that continues from it would fail", False, path, now)
    if item.holes:
        text = f"{gigabytes(item.holes)} of its weights were never written, or left out by a sparse copy"
        yield Reason("holes", text, False, path, now)
    best = next((one for one in run.checkpoints if one.best), None)
    if best is not None and best is not item and item.servable:
        yield Reason("superseded", _superseded(item, best, run.best_source), False, run.best_source, now)
    elif best is None and item.servable:
        why = run.best_problem or "No validation result names a best checkpoint: any of them may be the best."
        yield Reason("no_best", why, False, run.path, now)


def _superseded(item: Checkpoint, best: Checkpoint, source: str) -> str:
    predicted = item.predicted_acceptance
    if predicted is not None and best.predicted_acceptance is not None and best.predicted_acceptance > predicted:
        results = f"{best.predicted_acceptance:.2f} against {predicted:.2f}"
        return f"superseded: {best.name} has predicted acceptance {results}"
    if item.validation_loss is not None and best.validation_loss is not None:
        results = f"{best.validation_loss:.3f} against {item.validation_loss:.3f}"
        return f"superseded: {best.name} has validation loss {results}"
    return f"superseded: {source.rpartition('/')[2]} names {best.name}; {item.name} set no record of its own"


def _run(thing: Thing, snapshot: Snapshot) -> Iterator[Reason]:
    run = thing.run
    if run is None:
        return
    if run.best_problem:
        yield Reason("dangling_best", run.best_problem, False, run.best_source, snapshot.now)
    if not any(map(complete, run.checkpoints)) and not any(item.state == WRITING for item in run.checkpoints):
        yield Reason(
            "no_checkpoint", "none of its checkpoints can be served or continued", False, run.path, snapshot.now
        )
    if (run.settings.get("save_best") or "").lower() == "true":
        text = "it runs with --save-best: at each new best everything else in this folder is deleted by the trainer"
        yield Reason("save_best", text, False, run.path, snapshot.now)


def _context(thing: Thing, snapshot: Snapshot, cost: Optional[Rebuild]) -> Iterator[Reason]:
    """What helps to decide and neither protects nor accuses."""
    use = thing.use
    if use is not None and use.state == FREE:
        count = f"{use.files:,} file{'s' if use.files != 1 else ''}{', more were not asked about' if use.more else ''}"
        if use.proof == PROOF_KERNEL:
            text = f"not open or mapped by any process (kernel lease, {count})"
        else:
            text = f"no process that can be seen from here has it open ({count}); that is no proof of disuse"
        yield Reason("idle", text, False, "kernel lease", snapshot.now)
    if thing.found.locks and use is not None and use.state == FREE:
        text = f"{thing.found.locks:,} .lock files are left over in it; nobody holds them"
        yield Reason("locks", text, False, thing.path, snapshot.now)
    if cost is not None:
        text = f"rebuilding costs about {max(1, round(cost.minutes))} minutes: {cost.basis}"
        yield Reason("rebuild", text, False, thing.path, snapshot.now)
    if thing.size.exclusive < thing.size.allocated:
        shared = gigabytes(thing.size.allocated - thing.size.exclusive)
        yield Reason(
            "shared", f"{shared} of it are hard-linked elsewhere and would not be freed", False, "", snapshot.now
        )


def _rebuild(thing: Thing) -> Optional[Rebuild]:
    if thing.checkpoint and thing.run:
        return rebuild.of_checkpoint(thing.checkpoint, thing.run.checkpoints)
    if thing.kind == artifacts.RUN and thing.run:
        return rebuild.of_run(thing.run.checkpoints)
    if thing.kind in artifacts.REGENERABLE:
        return thing.rebuild
    return None
