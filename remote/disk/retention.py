"""Which checkpoints of a run must stay, and which ones the recommended policy lets go. Pure.

What stays is a union of guards, never the tail of one sorted list: numbers start again when a second run writes into
the same directory, and modification times lie after a copy, so the newest are looked for by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE, Checkpoint, Reason

NEWEST_KEPT = 2
"""One of them may be in the process of being saved, or turn out to be torn."""

CLOCK_SECONDS = 1.0
"""Times that differ by less say nothing about an order."""

WRITING = "writing"
TORN = "torn"
FULL = "full"


@dataclass(frozen=True)
class Staying:
    """A checkpoint that stays, and why."""

    checkpoint: Checkpoint
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Going:
    """A checkpoint that goes, at which level (``LEVEL_TRIM`` or ``LEVEL_WHOLE``), and why."""

    checkpoint: Checkpoint
    level: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Recommendation:
    """What the recommended policy does with a run; together all its checkpoints, the newest first.

    :param problem: why nothing may go at all, as a sentence; empty otherwise.
    """

    goes: tuple[Going, ...]
    stays: tuple[Staying, ...]
    problem: str = ""


def recommended(checkpoints: Sequence[Checkpoint], level: str, observed: Optional[float] = None) -> Recommendation:
    """The best (or what may be it), the newest two, the last resumable one and whatever a guard of its verdict protects
    stay; torn ones go; of the others the optimizer's state (``LEVEL_TRIM``) or everything (``LEVEL_WHOLE``) goes.

    :param observed: wall seconds of the reading, for the reasons.
    """
    if mixed(checkpoints):
        return _nothing(checkpoints, "mixed_runs", MIXED, observed)
    if level == LEVEL_WHOLE and not any(item.best for item in checkpoints) and any(map(complete, checkpoints)):
        return _nothing(checkpoints, "no_best", NO_BEST, observed)
    guards = protected(checkpoints, observed)
    goes: list[Going] = []
    stays: list[Staying] = []
    for item in newest_first(checkpoints):
        path = item.artifact.path
        reasons = (*guards.get(path, ()), *(reason for reason in item.artifact.verdict.reasons if reason.guard))
        if reasons:
            stays.append(Staying(item, _distinct(reasons)))
        elif item.state == TORN and not item.servable and item.strangers:
            why = Reason("strangers", STRANGERS.format(item.strangers), source=path, observed=observed)
            stays.append(Staying(item, (why,)))
        elif item.state == TORN and not item.servable:
            why = Reason("torn", f"torn: {item.problem}; nothing can be made of it", source=path, observed=observed)
            goes.append(Going(item, LEVEL_WHOLE, (why,)))
        elif level == LEVEL_TRIM and not has_optimizer(item):
            why = Reason("trimmed", "it has no optimizer state that could go", source=path, observed=observed)
            stays.append(Staying(item, (why,)))
        else:
            goes.append(Going(item, level, (_older(item, level, observed),)))
    return Recommendation(tuple(goes), tuple(stays))


def survives(checkpoints: Sequence[Checkpoint], removed: Mapping[str, str]) -> tuple[str, ...]:
    """Guarantee G6: what the run would lose, a sentence each; nothing when its best, its newest complete and its last
    resumable checkpoint all survive.

    The trainer continues from the highest number, so that trimming the newest one would make its next start fail.

    :param checkpoints: all of the run, as they are on the disk now.
    :param removed: the level by the path of each checkpoint that is to go.
    """
    problems: list[str] = []
    newest = _leaders(checkpoints, complete, 1)
    resumable = _leaders(checkpoints, lambda item: item.resumable, 1)
    for item in newest_first(checkpoints):
        path = item.artifact.path
        level = removed.get(path)
        if level is None:
            continue
        if item.state == WRITING:
            problems.append(f"{item.name} is being written")
        if item.best and level == LEVEL_WHOLE:
            problems.append(f"{item.name} is the best checkpoint of the run")
        elif item.possibly_best and level == LEVEL_WHOLE:
            problems.append(f"{item.name} may be the best checkpoint of the run: {item.possibly_best}")
        if path in newest:
            problems.append(f"{item.name} is the newest complete checkpoint of the run")
        if path in resumable:
            problems.append(f"{item.name} is the last checkpoint that the run can resume from")
    return tuple(problems)


def protected(checkpoints: Sequence[Checkpoint], observed: Optional[float] = None) -> dict[str, tuple[Reason, ...]]:
    """The guards that follow from the run as a whole, by path."""
    newest = _leaders(checkpoints, complete, NEWEST_KEPT)
    resumable = _leaders(checkpoints, lambda item: item.resumable, 1)
    alone = sum(item.resumable for item in checkpoints) == 1
    found: dict[str, tuple[Reason, ...]] = {}
    for item in checkpoints:
        path = item.artifact.path

        def guard(rule: str, text: str, path: str = path) -> Reason:
            return Reason(rule, text, guard=True, source=path, observed=observed)

        reasons = []
        if item.best:
            reasons.append(guard("best", f"kept: it is the best of the run{_loss(item)}"))
        if item.possibly_best:
            reasons.append(guard("possibly_best", f"kept: it may be the best: {item.possibly_best}"))
        if path in newest:
            text = "kept: it is the newest complete checkpoint" if item.newest else "kept: one of the newest two"
            reasons.append(guard("newest_two", text))
        if path in resumable:
            text = "the only checkpoint that can resume" if alone else "the last checkpoint that can resume"
            reasons.append(guard("last_resumable", f"kept: it is {text}"))
        if item.state == WRITING:
            reasons.append(guard("being_written", "kept: it is being written"))
        if item.artifact.pinned:
            reasons.append(guard("pinned", "kept: a person pinned it"))
        if reasons:
            found[path] = tuple(reasons)
    return found


def complete(item: Checkpoint) -> bool:
    """Whether the checkpoint counts as one that a run can fall back to."""
    return item.servable and item.state != WRITING


def has_optimizer(item: Checkpoint) -> bool:
    """Whether the checkpoint has optimizer state, so that trimming it frees something."""
    reclaim = item.artifact.verdict.reclaim
    return bool(reclaim and reclaim.get(LEVEL_TRIM)) or item.resumable or item.state == FULL


def mixed(checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the numbers and the times of the checkpoints contradict each other: two runs wrote there, or the times
    were lost in a copy."""
    dated = [item for item in checkpoints if _number(item) is not None and item.artifact.modified is not None]
    ordered = sorted(dated, key=lambda item: _number(item) or (0, 0))
    return any(
        (after.artifact.modified or 0.0) < (before.artifact.modified or 0.0) - CLOCK_SECONDS
        for before, after in zip(ordered, ordered[1:])
        if _number(before) != _number(after)
    )


def newest_first(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """In the order that the table shows: by number where there is one, those without by their time among them."""
    if all(_number(item) is not None for item in checkpoints):
        return sorted(checkpoints, key=lambda item: (_number(item) or (0, 0), _time(item)), reverse=True)
    return sorted(checkpoints, key=lambda item: (_time(item), _number(item) or (0, 0)), reverse=True)


MIXED = (
    "The numbers and times of its checkpoints contradict each other: two runs may have written here. Choose by hand."
)
STRANGERS = "it is torn, but holds {} files that no trainer writes: look before it goes"
NO_BEST = "No validation result names a best checkpoint, so any of them may be the best. Trim them, or choose by hand."


def _nothing(checkpoints: Sequence[Checkpoint], rule: str, problem: str, observed: Optional[float]) -> Recommendation:
    reason = Reason(rule, problem, guard=True, observed=observed)
    guards = protected(checkpoints, observed)
    stays = (Staying(item, (*guards.get(item.artifact.path, ()), reason)) for item in newest_first(checkpoints))
    return Recommendation((), tuple(stays), problem)


def _leaders(checkpoints: Sequence[Checkpoint], counts: Callable[[Checkpoint], bool], count: int) -> set[str]:
    """The newest ones by number and by time; where some have holes, also the newest of those without."""
    found: set[str] = set()
    candidates = [item for item in checkpoints if counts(item) and item.state != WRITING]
    for group in (candidates, [item for item in candidates if not item.holes]):
        numbered = [item for item in group if _number(item) is not None]
        by_number = sorted(numbered, key=lambda item: (_number(item) or (0, 0), _time(item)), reverse=True)
        by_time = sorted(group, key=lambda item: (_time(item), _number(item) or (0, 0)), reverse=True)
        found.update(item.artifact.path for item in (*by_number[:count], *by_time[:count]))
    return found


def _number(item: Checkpoint) -> Optional[tuple[int, int]]:
    """Its place in the run's own counting; the step alone where there are no epochs."""
    if item.epoch is None and item.step is None:
        return None
    return (item.epoch if item.epoch is not None else 0, item.step if item.step is not None else 0)


def _time(item: Checkpoint) -> float:
    return item.artifact.modified or 0.0


def _loss(item: Checkpoint) -> str:
    return f": validation loss {item.validation_loss:.3f}" if item.validation_loss is not None else ""


def _older(item: Checkpoint, level: str, observed: Optional[float]) -> Reason:
    what = (
        "drops the ability to resume from it; it stays servable" if level == LEVEL_TRIM else "older than the newest two"
    )
    text = f"{what}; neither the best nor the last resumable one"
    return Reason("older", text, source=item.artifact.path, observed=observed)


def _distinct(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    return tuple({reason.rule: reason for reason in reversed(reasons)}.values())[::-1]
