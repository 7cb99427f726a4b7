"""R1, R13 to R16 and R28: the two vocabularies and the mapping between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from pipeline.plan.draft_rules.facts import Draft
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.view import View


def check(draft: Draft, seen: View) -> Iterator[Finding]:
    """The findings of these rules."""
    tensor = draft.tensors.get("d2t")
    if tensor is None and seen.reduced and draft.tensors:
        yield found("R1", f"no d2t; {seen.draft_vocabulary} of {seen.vocabulary} tokens are drafted")
    if tensor is not None and not seen.reduced:
        said = draft.config.get("draft_vocab_size")
        size = "is missing" if said is None else f"is {said}, as vocab_size"
        yield found("R14", f"d2t has {list(tensor.shape)} values; draft_vocab_size {size}")
    elif tensor is not None and tensor.shape != (seen.draft_vocabulary,):
        yield found("R13", f"d2t is {list(tensor.shape)}; draft_vocab_size is {seen.draft_vocabulary}")
    if draft.d2t is not None:
        yield from _mapping(draft.d2t, draft.t2d, seen.vocabulary)
    elif tensor is not None:
        yield found("R16", f"d2t is of type {tensor.dtype}, or too long to be a mapping")
    if seen.reduced and seen.layer.get("tie_word_embeddings", draft.config.get("tie_word_embeddings")) is True:
        yield found(
            "R28", f"tie_word_embeddings is true; {seen.draft_vocabulary} of {seen.vocabulary} tokens are drafted"
        )


def _mapping(d2t: tuple[int, ...], t2d: Optional[tuple[int, ...]], vocabulary: Optional[int]) -> Iterator[Finding]:
    """R15 where the values are the tokens themselves, R16 where they are offsets to other tokens than t2d marks."""
    targets = [place + offset for place, offset in enumerate(d2t)]
    outside = [target for target in targets if target < 0 or (vocabulary is not None and target >= vocabulary)]
    if _are_tokens(d2t, targets, t2d, bool(outside)):
        how = "they are what t2d marks" if t2d else "as offsets they lead out of the vocabulary"
        yield found("R15", f"the values rise like token ids, {d2t[0]} to {d2t[-1]}; {how}")
    elif outside:
        yield found("R16", f"{len(outside)} of {len(d2t)} offsets lead out of the vocabulary of {vocabulary}")
    elif len(set(targets)) != len(targets):
        yield found("R16", f"{len(targets) - len(set(targets))} draft tokens share their token with another one")
    elif t2d is not None and tuple(targets) != t2d:
        wrong = sum(1 for left, right in zip(targets, t2d) if left != right)
        yield found("R16", f"t2d marks {len(t2d)} tokens, d2t has {len(d2t)}; {wrong} of them differ")


def _are_tokens(d2t: tuple[int, ...], targets: list[int], t2d: Optional[tuple[int, ...]], leads_out: bool) -> bool:
    if not d2t or d2t == tuple(targets):
        return False
    return d2t == t2d if t2d else leads_out and _rises(d2t)


def _rises(values: tuple[int, ...]) -> bool:
    return all(left < right for left, right in zip(values, values[1:]))
