"""Deletion as the agent offers it: plan, prune, undo, purge, trash, pins and journal of one workspace."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from remote import procfs
from remote.disk import commit, planbook, purge, recovery, restore, retention, targets
from remote.disk import plan as plans
from remote.disk.ground import Ground
from remote.disk.locking import DELETION, PURGE, locked
from remote.disk.manifest import Unmovable
from remote.disk.pins import EVENT_PIN, pins, protecting
from remote.disk.plan import StoredPlan, Target
from remote.disk.receipts import Ledger, Standing, expired, receipt
from remote.disk.runguard import Checkpoints
from remote.disk.syscalls import Syscalls
from remote.journal import Journal, uptime
from remote.policy import Policy
from remote.protocol import trash
from remote.protocol.artifacts import Checkpoint, Reason, Verdict
from remote.protocol.codec import to_wire
from remote.protocol.errors import CONFLICT, NOT_FOUND, REFUSED, RequestError
from remote.protocol.trash import Journal as JournalPage
from remote.protocol.trash import Pin, Plan, PlanItem, Receipt, TrashList

FRAME_BYTES = 200 * 1024
"""Of the 256 KiB of a frame."""

HOUSEKEEPER = "housekeeping"

Verdicts = Callable[[Sequence[str]], Mapping[str, Verdict]]
"""The verdicts over absolute paths; a path that it leaves out has none."""


def no_verdicts(paths: Sequence[str]) -> Mapping[str, Verdict]:
    """Nothing is known: only the guards that the engine checks itself stand."""
    return {}


def no_checkpoints(directory: str) -> Sequence[Checkpoint]:
    """No directory is a run."""
    return ()


class Deletion:
    """The engine over the workspace of a policy. All methods may block and be called from any thread.

    :param verdicts: what triage says; its guards protect at planning, those below are checked again at the effect.
    :param checkpoints: reads a run, for the recommended policy and for the guarantee that a run keeps its best, its
        newest complete and one resumable checkpoint.
    """

    def __init__(
        self,
        policy: Policy,
        verdicts: Verdicts = no_verdicts,
        checkpoints: Checkpoints = no_checkpoints,
        calls: Optional[Syscalls] = None,
    ) -> None:
        self._policy = policy
        self._verdicts = verdicts
        self._checkpoints = checkpoints
        self._calls = calls or Syscalls()
        self._journal = Journal(self._calls, self._state_folder)
        self._ledger = Ledger()

    @property
    def book(self) -> Journal:
        """The journal of the workspace, for whatever else acts on the host."""
        return self._journal

    def plan(self, paths: Sequence[str], level: str, force: Sequence[str] = ()) -> Plan:
        """What deleting these paths would move into the trash. Changes nothing.

        :param paths: absolute, or below the workspace.
        :param level: one of the ``LEVEL_`` words of ``remote.protocol.artifacts``.
        :param force: rules of guards that a person overrides, such as ``pinned``.
        :raises RequestError: ``refused`` with a sentence where nothing of it may be deleted.
        """
        with self._ground() as ground:
            asked = [Target(targets.relative(path, ground.names), level) for path in paths]
            return self._planned(ground, asked, force)

    def plan_recommended(self, directory: str, level: str) -> Plan:
        """What the recommended policy would prune of a run.

        :raises RequestError: as ``plan``.
        """
        with self._ground() as ground:
            run = targets.relative(directory, ground.names)
            found = self._checkpoints(ground.shown(run))
            if not found:
                raise RequestError(REFUSED, f"{ground.shown(run)} is no run with checkpoints")
            advice = retention.recommended(found, level, time.time())
            if advice.problem:
                raise RequestError(REFUSED, advice.problem)
            asked = [Target(f"{run}/{item.checkpoint.name}", item.level, item.reasons) for item in advice.goes]
            stays = [
                _staying(ground.shown(f"{run}/{item.checkpoint.name}"), level, item.reasons) for item in advice.stays
            ]
            return self._planned(ground, asked, (), stays)

    def prune(self, plan_id: str, fingerprint: str, typed: str, requested_by: str, key: Optional[str]) -> Receipt:
        """Moves into the trash what the plan says, item by item.

        :param typed: what a person typed, where the plan's ``confirm`` asks for it.
        :param key: a request that comes again with the same key gets the same receipt.
        :raises RequestError: ``refused`` where nothing was moved.
        """
        self._policy.require_writable()
        with self._ground() as ground, locked(ground, DELETION):
            known = self._mended(ground)
            before = [item for item in known.values() if key and item.intent.key == key]
            standing = before[0] if before else self._committed(ground, plan_id, fingerprint, typed, requested_by, key)
        return _answer(standing, trash.TRASHED)

    def undo(self, receipt_id: str, requested_by: str) -> Receipt:
        """Puts back what a prune moved away, each item at its place or not at all.

        :raises RequestError: ``not_found``; ``refused`` where nothing can be put back.
        """
        self._policy.require_writable()
        with self._ground() as ground, locked(ground, DELETION):
            standing = _named(self._mended(ground), receipt_id)
            states = {outcome.state for outcome in standing.outcomes}
            if trash.TRASHED in states:
                standing = restore.undo(ground, self._journal, standing, requested_by)
            elif states & {trash.PURGED, trash.PURGING}:
                raise RequestError(REFUSED, f"{receipt_id} has been purged and cannot be put back")
        return _answer(standing, trash.RESTORED)

    def purge(self, receipt_id: str, requested_by: str) -> TrashList:
        """Unlinks for good what a receipt has in the trash.

        :raises RequestError: ``not_found``; ``refused`` where nothing of it lies there.
        """
        self._policy.require_writable()
        with self._ground() as ground, locked(ground, PURGE):
            with locked(ground, DELETION):
                standing = _named(self._mended(ground), receipt_id)
                if not standing.in_trash:
                    return _receipts([_purged_before(standing)])
                begun = purge.begin(ground, self._journal, standing, requested_by)
            return _receipts([purge.finish(ground, self._journal, begun, requested_by)])

    def purge_expired(self, requested_by: str) -> TrashList:
        """Unlinks for good what has lain in the trash for longer than it is kept."""
        self._policy.require_writable()
        with self._ground() as ground, locked(ground, PURGE):
            return _receipts(self._purge_expired(ground, requested_by))

    def trash(self) -> TrashList:
        """The receipts whose items lie in the trash, the newest first."""
        try:
            found = self._ledger.standings(self._journal.lines())
        except RequestError as error:
            return TrashList(problem=error.message)
        return _receipts([item for item in reversed(list(found.values())) if item.in_trash])

    def pin(self, path: str, pinned: bool, requested_by: str) -> Pin:
        """Protects a path from every prune, or ends that.

        :raises RequestError: ``refused`` for a path outside the workspace.
        """
        self._policy.require_writable()
        with self._ground() as ground:
            shown = ground.shown(targets.relative(path, ground.names))
        pin = Pin(shown, pinned, requested_by, time.time())
        text = f"{'pinned' if pinned else 'no longer pinned'}: {shown}"
        self._journal.append("pin", text, requested_by, paths=[shown], event=EVENT_PIN, data=pin)
        return pin

    def pinned(self) -> Mapping[str, Pin]:
        """The pins that stand, by their absolute paths."""
        return pins(self._journal.lines())

    def journal(self, after: Optional[int], limit: Optional[int]) -> JournalPage:
        """The last entries of the journal, those behind the seq ``after``, at most ``limit``."""
        try:
            return self._journal.page(after, limit)
        except RequestError as error:
            return JournalPage(problem=error.message)

    def record(self, action: str, text: str, requested_by: str = "", paths: Sequence[str] = ()) -> None:
        """A line of the journal about something that another part of the agent does.

        :raises RequestError: ``failed`` where it cannot be written.
        """
        self._journal.append(action, text, requested_by, paths=paths)

    def housekeeping(self) -> None:
        """Mends what a crash left half done, goes on with purges that were cut short and purges what has expired.

        Called at the start of agents and runners. Does nothing in a workspace without a journal, on a read-only
        connection, or while somebody else is deleting.
        """
        if self._policy.readonly or not self._policy.workspace:
            return
        with contextlib.suppress(RequestError):
            if not self._journal.lines():
                return
            with self._ground() as ground:
                self._journal.reserve()
                with locked(ground, PURGE, wait=0.0):
                    self._purge_expired(ground, HOUSEKEEPER)

    def prepare(self) -> None:
        """Makes the trash and the journal with room for its first lines, as far as that is possible."""
        with contextlib.suppress(RequestError), self._ground() as ground:
            os.close(ground.trash(create=True))
            self._journal.reserve(create=True)

    def _planned(
        self, ground: Ground, asked: Sequence[Target], force: Sequence[str], stays: Sequence[PlanItem] = ()
    ) -> Plan:
        paths = [ground.shown(target.relative) for target in asked]
        verdicts = dict(self._verdicts(paths))
        standing = self.pinned()
        for path in paths:
            holder = protecting(standing, path)
            if holder:
                verdicts[path] = _with_pin(verdicts.get(path), standing[holder])
        stored = plans.make(ground, asked, verdicts, force, self._checkpoints, stays)
        if len(json.dumps(to_wire(stored.plan))) > FRAME_BYTES:
            raise RequestError(REFUSED, "these are too many paths for one plan; prune them in several")
        if not self._policy.readonly:
            planbook.store(stored)
        return stored.plan

    def _committed(
        self, ground: Ground, plan_id: str, fingerprint: str, typed: str, requested_by: str, key: Optional[str]
    ) -> Standing:
        used = [item for item in self._ledger.standings(self._journal.lines()).values() if item.intent.plan == plan_id]
        if used:
            raise RequestError(REFUSED, f"the plan {plan_id} was carried out already; its receipt is {used[0].id}")
        stored = planbook.load(plan_id)
        _check_binding(stored, ground, fingerprint, typed)
        planbook.remove(plan_id)
        return commit.commit(ground, self._journal, stored, self._guard(ground, stored), requested_by, key or "")

    def _guard(self, ground: Ground, stored: StoredPlan) -> commit.Guard:
        """What is asked again before each item: has it been pinned since it was planned, and does its run need it?"""
        new = [path for path, pin in self.pinned().items() if (pin.wall or 0.0) > stored.plan.created]

        def guard(relative: str, level: str) -> None:
            holder = protecting(new, ground.shown(relative))
            if holder:
                raise Unmovable("pinned", f"{holder} has been pinned since it was planned")
            plans.check_run(ground, self._checkpoints, relative, level)

        return guard

    def _mended(self, ground: Ground) -> dict[str, Standing]:
        """The receipts, with what a crash left half done mended; under the lock."""
        return recovery.mend(ground, self._journal, self._ledger.standings(self._journal.lines()))

    def _purge_expired(self, ground: Ground, requested_by: str) -> list[Standing]:
        now = (time.time(), procfs.boot_id(), uptime())
        with locked(ground, DELETION):
            due = [
                item
                for item in self._mended(ground).values()
                if item.in_trash and (item.cut or expired(item.line, *now))
            ]
            begun = [purge.begin(ground, self._journal, item, requested_by) for item in due]
        return [purge.finish(ground, self._journal, item, requested_by) for item in begun]

    def _ground(self) -> Ground:
        return Ground(self._calls, self._policy.workspace)

    def _state_folder(self, create: bool) -> int:
        with self._ground() as ground:
            return ground.state(create)


def _check_binding(stored: StoredPlan, ground: Ground, fingerprint: str, typed: str) -> None:
    plan = stored.plan
    if plan.machine_id != procfs.machine_id():
        raise RequestError(REFUSED, "the plan was made on another host")
    if plan.boot_id != procfs.boot_id():
        raise RequestError(REFUSED, "the host was started anew since the plan was made; plan again")
    if uptime() > stored.deadline:
        raise RequestError(REFUSED, f"the plan has expired after {plans.PLAN_SECONDS / 60:.0f} minutes; plan again")
    if stored.root != ground.id:
        raise RequestError(REFUSED, "the workspace is not the directory that the plan was made for; plan again")
    if fingerprint != plan.fingerprint or plan.fingerprint != plans.fingerprint(plan.id, stored.root, stored.items):
        raise RequestError(REFUSED, "this is not the plan that was confirmed: its fingerprint is another one")
    if typed != plan.confirm and plan.confirm:
        raise RequestError(REFUSED, f"nothing was changed: {plan.unseen}", f"type exactly: {plan.confirm}")


def _named(known: Mapping[str, Standing], receipt_id: str) -> Standing:
    standing = known.get(receipt_id)
    if standing is None:
        newest = ", ".join(list(known)[:-6:-1]) or "none"
        raise RequestError(NOT_FOUND, f"there is no receipt {receipt_id!r}; the newest are: {newest}")
    return standing


def _answer(standing: Standing, wanted: str) -> Receipt:
    """The receipt, where at least one item came to the state that was wanted.

    :raises RequestError: ``refused`` where none did, with the first reason.
    """
    if any(outcome.state == wanted for outcome in standing.outcomes):
        return receipt(standing)
    path, problem = next(
        (
            (entry.path, outcome.problem)
            for entry, outcome in zip(standing.intent.entries, standing.outcomes)
            if outcome.problem
        ),
        (standing.id, f"it is {standing.outcomes[0].state}"),
    )
    raise RequestError(REFUSED, f"{path}: {problem}; nothing was changed")


def _purged_before(standing: Standing) -> Standing:
    if any(outcome.state == trash.PURGED for outcome in standing.outcomes):
        return standing
    raise RequestError(CONFLICT, f"{standing.id} has nothing in the trash")


def _receipts(found: Sequence[Standing]) -> TrashList:
    """As many receipts as fit into a frame."""
    shown: list[Receipt] = []
    room = FRAME_BYTES
    for standing in found:
        entry = receipt(standing)
        room -= len(json.dumps(dataclasses.asdict(entry)))
        if room < 0 and shown:
            break
        shown.append(entry)
    return TrashList(tuple(shown), sum(item.allocated for item in found), len(found) - len(shown))


def _staying(path: str, level: str, reasons: tuple[Reason, ...]) -> PlanItem:
    text = reasons[0].text if reasons else "it stays"
    return PlanItem(path, "directory", level, 0, 0, 0, reasons, text)


def _with_pin(verdict: Optional[Verdict], pin: Pin) -> Verdict:
    by = f" by {pin.who}" if pin.who else ""
    reason = Reason("pinned", f"kept: {pin.path} is pinned{by}", guard=True, source="journal", observed=pin.wall)
    if verdict is None:
        return Verdict("keep", (reason,))
    return replace(verdict, reasons=(*(item for item in verdict.reasons if item.rule != "pinned"), reason))
