"""One thing that a rule found in a draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from pipeline.plan.draft_rules.catalogue import RULES, Rule

EVIDENCE_LENGTH = 400
"""Characters: names of tensors and paths are the folder's own and may be of any length."""


@dataclass(frozen=True)
class Finding:
    """What was found.

    :param id: of the rule.
    :param level: of this finding; a rule's own level, or a graver or lighter one where the evidence says so.
    :param evidence: what in the folder says so, with names and numbers.
    """

    id: str
    level: str
    evidence: str

    @property
    def rule(self) -> Rule:
        return RULES[self.id]


def found(rule: str, evidence: str, level: Optional[str] = None) -> Finding:
    """A finding at the rule's level, or at another one."""
    if len(evidence) > EVIDENCE_LENGTH:
        evidence = evidence[: EVIDENCE_LENGTH - 1] + "…"
    return Finding(rule, level or RULES[rule].level, evidence)
