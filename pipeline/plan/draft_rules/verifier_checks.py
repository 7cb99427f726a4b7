"""R17, R18, R26, R27, R31 and R33: the draft beside the verifier that it is to be served with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.plan.draft_rules.catalogue import NOTE
from pipeline.plan.draft_rules.facts import SPECULATORS, Draft, Verifier, positive
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.view import View, architecture


def check(draft: Draft, seen: View, verifier: Verifier) -> Iterator[Finding]:
    """The findings of these rules."""
    vocabulary, hidden = verifier.number("vocab_size"), verifier.number("hidden_size")
    if vocabulary and seen.vocabulary and vocabulary != seen.vocabulary:
        yield found("R17", f"vocab_size is {seen.vocabulary}, the verifier's {vocabulary}")
    if hidden and seen.target_hidden and hidden != seen.target_hidden:
        name = "target_hidden_size" if positive(draft.config.get("target_hidden_size")) else "hidden_size"
        yield found("R18", f"{name} is {seen.target_hidden}; the verifier's states have {hidden} values")
    theirs, ours = verifier.number("max_position_embeddings"), positive(seen.layer.get("max_position_embeddings"))
    if theirs and ours and ours < theirs:
        yield found("R26", f"max_position_embeddings is {ours}, the verifier's {theirs}")
    left, right = _theta(seen.layer), _theta(verifier.text)
    if left and right and left != right:
        yield found("R27", f"the rotary base is {left:g}, the verifier's {right:g}: right if it was trained so", NOTE)
    yield from _trained_for(draft, seen, verifier)
    kind = str(verifier.config.get("model_type") or "")
    if kind == "kimi_k25" or architecture(verifier.config).startswith("KimiK25"):
        yield found("R33", f"the verifier is {architecture(verifier.config) or kind}")


def _trained_for(draft: Draft, seen: View, verifier: Verifier) -> Iterator[Finding]:
    if seen.format != SPECULATORS:
        return
    inner = draft.config["speculators_config"]
    said = inner.get("verifier") if isinstance(inner, Mapping) else None
    names = said.get("architectures") if isinstance(said, Mapping) else None
    theirs = verifier.config.get("architectures")
    if isinstance(names, list) and isinstance(theirs, list) and names and theirs and names != theirs:
        yield found("R31", f"trained for {names[0]}, the verifier is {theirs[0]}")


def _theta(layer: Mapping[str, Any]) -> float:
    parameters = layer.get("rope_parameters")
    inner = parameters.get("rope_theta") if isinstance(parameters, Mapping) else None
    value = layer.get("rope_theta") if inner is None else inner
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
