"""Deletion as the agent offers it: plan, prune, undo, purge, trash, pins and journal of one workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from remote.policy import Policy
from remote.protocol.artifacts import Checkpoint, Verdict
from remote.protocol.errors import UNSUPPORTED, RequestError
from remote.protocol.trash import Journal, Pin, Plan, Receipt, TrashList

Verdicts = Callable[[Sequence[str]], Mapping[str, Verdict]]
"""The verdicts over absolute paths; a path that it leaves out has none."""

Checkpoints = Callable[[str], Sequence[Checkpoint]]
"""The checkpoints of a run directory, read from the disk at that moment; nothing for a directory that is no run."""


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
        self, policy: Policy, verdicts: Verdicts = no_verdicts, checkpoints: Checkpoints = no_checkpoints
    ) -> None:
        self._policy = policy
        self._verdicts = verdicts
        self._checkpoints = checkpoints

    def plan(self, paths: Sequence[str], level: str, force: Sequence[str] = ()) -> Plan:
        """What deleting these paths would move into the trash. Changes nothing.

        :param paths: absolute, or below the workspace.
        :param level: one of the ``LEVEL_`` words of ``remote.protocol.artifacts``.
        :param force: rules of guards that a person overrides, such as ``pinned``.
        :raises RequestError: ``refused`` with a sentence where nothing of it may be deleted.
        """
        raise _not_yet()

    def plan_recommended(self, directory: str, level: str) -> Plan:
        """What the recommended policy would prune of a run.

        :raises RequestError: as ``plan``.
        """
        raise _not_yet()

    def prune(self, plan_id: str, fingerprint: str, typed: str, requested_by: str, key: Optional[str]) -> Receipt:
        """Moves into the trash what the plan says, item by item.

        :param typed: what a person typed, where the plan's ``confirm`` asks for it.
        :param key: a request that comes again with the same key gets the same receipt.
        :raises RequestError: ``refused`` where nothing was moved.
        """
        raise _not_yet()

    def undo(self, receipt: str, requested_by: str) -> Receipt:
        """Puts back what a prune moved away, each item at its place or not at all.

        :raises RequestError: ``not_found``; ``refused`` where nothing can be put back.
        """
        raise _not_yet()

    def purge(self, receipt: str, requested_by: str) -> TrashList:
        """Unlinks for good what a receipt has in the trash.

        :raises RequestError: ``not_found``; ``refused``.
        """
        raise _not_yet()

    def purge_expired(self, requested_by: str) -> TrashList:
        """Unlinks for good what has lain in the trash for longer than it is kept."""
        raise _not_yet()

    def trash(self) -> TrashList:
        """The receipts whose items lie in the trash, the newest first."""
        raise _not_yet()

    def pin(self, path: str, pinned: bool, requested_by: str) -> Pin:
        """Protects a path from every prune, or ends that."""
        raise _not_yet()

    def pinned(self) -> Mapping[str, Pin]:
        """The pins that stand, by their absolute paths."""
        raise _not_yet()

    def journal(self, after: Optional[int], limit: Optional[int]) -> Journal:
        """The last entries of the journal, those behind the seq ``after``, at most ``limit``."""
        raise _not_yet()

    def housekeeping(self) -> None:
        """Mends what a crash left half done and purges what has expired. Called at the start of agents and runners;
        does nothing in a workspace that has no journal."""
        raise _not_yet()


def _not_yet() -> RequestError:
    return RequestError(UNSUPPORTED, "this agent cannot delete yet")
