"""All rules over the facts of one draft."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from pipeline.plan.draft_rules import config_checks, layer_checks, mapping_checks, tensor_checks, verifier_checks
from pipeline.plan.draft_rules.catalogue import ERROR, LEVELS, RULES
from pipeline.plan.draft_rules.facts import Draft, Verifier
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.view import view

_ORDER = list(RULES)


def check(draft: Draft, verifier: Optional[Verifier] = None, convention: Optional[str] = None) -> list[Finding]:
    """What the rules find, the gravest first, then in the order of the rules.

    :param verifier: the verifier that the draft is to be served with; rules that need it are left out without one.
    :param convention: how the config's layer ids count (``facts.CONVENTIONS``); None where nobody has said.
    """
    findings = list(_all(draft, verifier, convention))
    return sorted(findings, key=lambda item: (LEVELS.index(item.level), _ORDER.index(item.id)))


def errors(findings: list[Finding]) -> list[Finding]:
    """Those that keep the draft from being served, or from being of any use."""
    return [finding for finding in findings if finding.level == ERROR]


def not_judged(verifier: Optional[Verifier]) -> tuple[str, ...]:
    """The rules that were judged in part or not at all because no verifier was given."""
    return () if verifier else tuple(rule.id for rule in RULES.values() if rule.needs_verifier)


def _all(draft: Draft, verifier: Optional[Verifier], convention: Optional[str]) -> Iterator[Finding]:
    for problem in draft.problems:
        yield found(problem.rule, problem.evidence)
    if not draft.config:
        return
    seen = view(draft)
    if not any(problem.rule == "F3" for problem in draft.problems):
        yield from tensor_checks.check(draft, seen)
        yield from mapping_checks.check(draft, seen)
    yield from layer_checks.check(draft, seen, verifier, convention)
    yield from config_checks.check(draft, seen)
    if verifier is not None:
        yield from verifier_checks.check(draft, seen, verifier)
