"""Whether a stage can be launched now: pure checks over facts. Each says what it found and what to do.

A check that cannot know (a Python without a known folder layout, a host without NVML) warns or is silent, and does not
block.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.plan.stage import Stage
from remote.jobs.facts import Facts
from remote.jobs.preflight.environment import checks as environment_checks
from remote.jobs.preflight.machine import checks as machine_checks
from remote.jobs.preflight.memory import checks as memory_checks
from remote.jobs.preflight.model import checks as model_checks
from remote.jobs.preflight.place import checks as place_checks
from remote.jobs.preflight.rules import PYTHON, RULES, UNFORCEABLE
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

__all__ = ["RULES", "UNFORCEABLE", "blocking", "checks", "verdict"]


def checks(stage: Stage, facts: Facts) -> tuple[Check, ...]:
    """The checks of a stage, in the order in which a person would go through them."""
    found = [*place_checks(stage, facts)]
    if facts.simulated:
        found.append(Check(PYTHON, VERDICT_OK, "no ML environment: a recorded run is replayed"))
    else:
        for part in (environment_checks, model_checks, memory_checks):
            found += part(stage, facts)
    found += machine_checks(stage, facts)
    return tuple(found)


def verdict(found: Sequence[Check]) -> str:
    """The worst verdict of the checks."""
    verdicts = {check.verdict for check in found}
    return next((word for word in (VERDICT_BLOCKED, VERDICT_WARNING) if word in verdicts), VERDICT_OK)


def blocking(found: Sequence[Check], forced: Sequence[str]) -> list[Check]:
    """The checks that stand in the way although some were forced."""
    return [
        check
        for check in found
        if check.verdict == VERDICT_BLOCKED and (check.rule not in forced or check.rule in UNFORCEABLE)
    ]
