"""Making a plan: what goes, what stays and why, with the fingerprint of every inode that goes. Changes nothing."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from remote import procfs
from remote.disk import idleness, manifest, runguard, targets, trimming
from remote.disk.ground import Ground, RootId
from remote.disk.manifest import Inode, Link, Manifest, Unmovable
from remote.disk.receipts import Move
from remote.disk.runguard import Checkpoints
from remote.disk.syscalls import Unsupported
from remote.journal import uptime
from remote.protocol.artifacts import LEVEL_TRIM, Reason, Verdict
from remote.protocol.errors import BAD_ARGUMENT, REFUSED, RequestError
from remote.protocol.trash import Plan, PlanItem

PLAN_SECONDS = 600.0
"""How long a plan may be carried out."""

UNFORCEABLE = frozenset(
    {
        "in_use",
        "being_written",
        "mount_inside",
        "foreign_owner",
        "unproven",
        "last_resumable",
        "best",
        "newest_complete",
    }
)
"""Guards that nobody overrides."""


@dataclass(frozen=True)
class Target:
    """One thing that is asked to go.

    :param relative: its path below the workspace.
    :param reasons: why it is asked for, where a policy asks.
    """

    relative: str
    level: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class PlannedItem:
    """An item that goes, with its renames; the names in the trash are given at the commit."""

    relative: str
    item: PlanItem
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class StoredPlan:
    """A plan with all that carrying it out needs.

    :param deadline: until when it may be carried out, on the clock of ``remote.journal.uptime``.
    """

    plan: Plan
    root: RootId
    items: tuple[PlannedItem, ...]
    deadline: float


@dataclass(frozen=True)
class _Measured:
    """Of one item: its renames and its bytes."""

    moves: tuple[Move, ...]
    allocated: int
    files: int
    linked: Mapping[Inode, Link]


def make(
    ground: Ground,
    asked: Sequence[Target],
    verdicts: Mapping[str, Verdict],
    force: Sequence[str],
    checkpoints: Checkpoints,
    also_stays: Sequence[PlanItem] = (),
) -> StoredPlan:
    """The plan for these targets.

    :param verdicts: by the absolute path as ``Ground.shown`` gives it.
    :param force: rules of guards that a person overrides.
    :param also_stays: what a policy already decided to keep.
    :raises RequestError: ``refused`` where nothing at all may go.
    """
    _check_force(force)
    if ground.filesystem.readonly:
        raise RequestError(REFUSED, f"{ground.workspace} is mounted read-only: nothing in it can be moved")
    if len(asked) > targets.MAX_TARGETS:
        raise RequestError(BAD_ARGUMENT, f"at most {targets.MAX_TARGETS} paths in one plan, not {len(asked)}")
    going, nested = targets.without_nested([target.relative for target in asked])
    by_path = {target.relative: target for target in reversed(asked)}
    items: list[PlannedItem] = []
    stays = [*also_stays, *(_nested(ground, by_path[path], above) for path, above in nested)]
    maps: list[Mapping[Inode, Link]] = []
    for relative in going:
        target = by_path[relative]
        verdict = verdicts.get(ground.shown(relative))
        try:
            _check_verdict(verdict, force)
            measured = _measure(ground, target)
            check_run(ground, checkpoints, relative, target.level)
        except Unmovable as error:
            stays.append(_refused(ground, target, verdict, error.rule, str(error)))
            continue
        except RequestError as error:
            stays.append(_refused(ground, target, verdict, "unreachable", error.message))
            continue
        maps.append(measured.linked)
        items.append(PlannedItem(relative, _item(ground, target, verdict, measured), measured.moves))
    if not items:
        raise RequestError(REFUSED, _nothing(stays))
    return _bound(ground, tuple(items), tuple(stays), manifest.merged(maps))


def find_moves(ground: Ground, relative: str, level: str) -> list[tuple[str, Manifest]]:
    """The renames that an item takes, as paths below the workspace with what lies there now.

    :raises Unmovable, RequestError: where it must not or cannot be moved.
    """
    parent, name = ground.parent(relative)
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise Unmovable("symbolic_link", "it is a symbolic link, and none is followed")
        if level == LEVEL_TRIM:
            return _trimmed(ground, parent, name, relative)
        return [(relative, manifest.scan(ground.calls, parent, name, os.geteuid()))]
    except FileNotFoundError:
        raise Unmovable("gone", "it does not exist") from None
    except OSError as error:
        raise Unmovable("unreadable", f"it cannot be read as a whole: {error.strerror}") from None
    except Unsupported as error:
        raise Unmovable("unproven", str(error)) from None
    finally:
        os.close(parent)


def check_run(ground: Ground, checkpoints: Checkpoints, relative: str, level: str) -> None:
    """Guarantee G6.

    :raises Unmovable: where a run would lose what it needs, or cannot be read.
    """
    try:
        problems = runguard.losses(checkpoints, ground.workspace, relative, level)
    except OSError as error:
        raise Unmovable("unreadable", f"its run cannot be read: {error.strerror}") from None
    if problems:
        raise Unmovable("run_needs_it", "; ".join(problems))


def fingerprint(plan_id: str, root: RootId, items: Sequence[PlannedItem]) -> str:
    """Over everything that goes, the levels, and what the plan is bound to."""
    digest = hashlib.sha256(f"{plan_id} {procfs.machine_id()} {procfs.boot_id()} {root}\n".encode())
    for item in items:
        digest.update(f"{item.item.level}\0".encode())
        for move in item.moves:
            digest.update(os.fsencode(move.source) + f"\0{move.fingerprint}\n".encode())
    return digest.hexdigest()


def _trimmed(ground: Ground, parent: int, name: str, relative: str) -> list[tuple[str, Manifest]]:
    found: list[str] = []

    def visit(directory: int, child: str, below: str, status: os.stat_result) -> None:
        if below and stat.S_ISREG(status.st_mode) and trimming.is_training_state(child):
            found.append(f"{relative}/{below}")

    manifest.walk(ground.calls, parent, name, visit)
    if not found:
        raise Unmovable("trimmed", "it has no optimizer or scheduler state that could go")
    moves = []
    for path in found:
        folder, child = ground.parent(path)
        try:
            moves.append((path, manifest.scan(ground.calls, folder, child, os.geteuid())))
        finally:
            os.close(folder)
    return moves


def _measure(ground: Ground, target: Target) -> _Measured:
    found = find_moves(ground, target.relative, target.level)
    moves = []
    for path, tree in found:
        parent, name = ground.parent(path)
        try:
            with idleness.idle(ground, parent, name, path, tree.files):
                pass
        finally:
            os.close(parent)
        moves.append(
            Move(
                path, "", tree.device, tree.inode, tree.directory, tree.files, tree.fingerprint, tree.body, tree.content
            )
        )
    linked = manifest.merged([tree.linked for _, tree in found])
    return _Measured(
        tuple(moves), sum(tree.allocated for _, tree in found), sum(tree.files for _, tree in found), linked
    )


def _bound(
    ground: Ground, items: tuple[PlannedItem, ...], stays: tuple[PlanItem, ...], linked: Mapping[Inode, Link]
) -> StoredPlan:
    plan_id = secrets.token_hex(8)
    created = time.time()
    plan = Plan(
        id=plan_id,
        items=tuple(item.item for item in items),
        stays=stays,
        fingerprint=fingerprint(plan_id, ground.id, items),
        machine_id=procfs.machine_id(),
        boot_id=procfs.boot_id(),
        created=created,
        expires=created + PLAN_SECONDS,
        exclusive=manifest.exclusive(sum(item.item.allocated for item in items), linked),
        confirm=ground.filesystem.proof.confirm,
        unseen=ground.filesystem.proof.unseen,
    )
    return StoredPlan(plan, ground.id, items, uptime() + PLAN_SECONDS)


def _item(ground: Ground, target: Target, verdict: Optional[Verdict], measured: _Measured) -> PlanItem:
    return PlanItem(
        path=ground.shown(target.relative),
        kind="directory" if measured.moves[0].directory else "file",
        level=target.level,
        allocated=measured.allocated,
        exclusive=manifest.exclusive(measured.allocated, measured.linked),
        files=measured.files,
        reasons=target.reasons or (verdict.reasons if verdict else ()),
        proof=ground.filesystem.proof.strength,
    )


def _check_force(force: Sequence[str]) -> None:
    hard = sorted(UNFORCEABLE.intersection(force))
    if hard:
        raise RequestError(REFUSED, f"the guard {hard[0]} cannot be overridden")


def _check_verdict(verdict: Optional[Verdict], force: Sequence[str]) -> None:
    for reason in verdict.reasons if verdict else ():
        if reason.guard and reason.rule not in force:
            raise Unmovable(reason.rule, reason.text)


def _refused(ground: Ground, target: Target, verdict: Optional[Verdict], rule: str, text: str) -> PlanItem:
    reason = Reason(rule, text, guard=True, observed=time.time())
    others = tuple(item for item in (verdict.reasons if verdict else ()) if item.rule != rule)
    path = ground.shown(target.relative)
    return PlanItem(path, "", target.level, 0, 0, 0, (reason, *others), text, ground.filesystem.proof.strength)


def _nested(ground: Ground, target: Target, above: str) -> PlanItem:
    text = f"it is part of {ground.shown(above)}, which is asked for too"
    return PlanItem(ground.shown(target.relative), "", target.level, 0, 0, 0, (Reason("nested", text),), text)


def _nothing(stays: Sequence[PlanItem]) -> str:
    if not stays:
        return "nothing is asked for"
    first = stays[0]
    more = f" (and {len(stays) - 1} more stay)" if len(stays) > 1 else ""
    return f"{first.path} stays: {first.refused}{more}"
