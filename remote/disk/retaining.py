"""Retention while a run trains: what the recommended policy would let go, after each epoch that was saved.

It is the same plan, the same guards and the same trash as by hand; a person can undo it until it is purged.
"""

from __future__ import annotations

from typing import Optional

from remote.disk.deletion import Deletion
from remote.disk.survey import Survey
from remote.policy import Policy
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.trash import Receipt


def engine(policy: Policy) -> Deletion:
    """The engine of a workspace as an agent has it, with everything that triage and pins protect."""
    survey = Survey(policy.workspace, lambda: deletion.pinned())
    deletion = Deletion(policy, survey.verdicts, survey.checkpoints_now)
    return deletion


def retain(engine: Deletion, run: str, level: str, job: str) -> Optional[Receipt]:
    """Prunes a run by the recommended policy; None where nothing may go now.

    :param run: the run's directory.
    :param level: one of the ``LEVEL_`` words of ``remote.protocol.artifacts``.
    :param job: who asks, for the journal; asking twice for the same plan prunes once.
    :raises RequestError: where the workspace cannot be read, or the journal cannot be written; ``refused`` where the
        disuse of files cannot be proven by the kernel: a person must confirm that.
    """
    try:
        plan = engine.plan_recommended(run, level)
    except RequestError as error:
        if error.code == REFUSED:
            return None
        raise
    if plan.confirm:
        raise RequestError(REFUSED, f"nothing is pruned: {plan.unseen or 'disuse cannot be proven by the kernel here'}")
    return engine.prune(plan.id, plan.fingerprint, "", job, f"{job}:{plan.fingerprint}")
