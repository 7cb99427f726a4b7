"""R2 to R8, R13, R17, R18 and R22: the tensors that are there, and those that vLLM builds for this config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.plan.draft_rules.catalogue import ERROR
from pipeline.plan.draft_rules.facts import Draft, Sample
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.view import OTHER, Shape, View, expected, layer_name, nested

_FREE = ("t2d", "mask_hidden", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
"""What vLLM's loaders pass over wherever it stands in a name."""

_OWN = ("lm_head.weight", "embed_tokens.weight", "d2t", "fc.weight")
"""Each has rules of its own for being absent, or may be."""


def check(draft: Draft, seen: View) -> Iterator[Finding]:
    """The findings of these rules."""
    if not draft.tensors:
        return
    wanted = expected(seen)
    there = {layer_name(name): tensor.shape for name, tensor in draft.tensors.items()}
    yield from _missing(there, wanted, seen)
    yield from _strangers(draft, wanted, seen)
    yield from _shapes(there, wanted, draft, seen)
    yield from _values(draft.samples)


def _missing(there: dict[str, tuple[int, ...]], wanted: dict[str, Shape], seen: View) -> Iterator[Finding]:
    if "fc.weight" not in there and reads_states(seen):
        yield found("R2", "no tensor is called fc.weight")
    if "lm_head.weight" not in there and seen.reduced:
        yield found("R3", f"no lm_head.weight; {seen.draft_vocabulary} of {seen.vocabulary} tokens are drafted")
    lacking = sorted(set(wanted) - set(there) - set(_OWN))
    for rule, names in (
        ("R4", [name for name in lacking if "norm" not in name]),
        ("R6", [name for name in lacking if "norm" in name]),
    ):
        if names:
            yield found(rule, f"no tensor is called {listed(names)}")


def _strangers(draft: Draft, wanted: dict[str, Shape], seen: View) -> Iterator[Finding]:
    """Tensors that this config has no place for."""
    unknown, spare = [], []
    for name in sorted(draft.tensors):
        plain = layer_name(name)
        if plain in wanted or plain == "d2t" or plain.endswith(".bias") or any(word in plain for word in _FREE):
            continue
        if plain == "input_norm.weight":
            yield found(
                "R7", f"input_norm.weight {list(draft.tensors[name].shape)} is there; norm_before_fc is not true"
            )
        elif plain.startswith("fc_norm."):
            spare.append(name)
        elif not (seen.family == OTHER and plain.startswith("layers.")):
            unknown.append(name)
    if spare:
        yield found("R8", f"{listed(spare)} there; fc_norm is not true at the top level", ERROR)
    if unknown:
        yield found("R22", listed(unknown))


def _shapes(there: dict[str, tuple[int, ...]], wanted: dict[str, Shape], draft: Draft, seen: View) -> Iterator[Finding]:
    head = there.get("lm_head.weight")
    said = draft.config.get("draft_vocab_size") is not None
    if head and (said or "d2t" not in there) and _differs(head[:1], (seen.draft_vocabulary,)):
        word = "draft_vocab_size" if said else "vocab_size"
        yield found("R13", f"lm_head.weight has {head[0]} rows; {word} is {seen.draft_vocabulary}")
    embedding = there.get("embed_tokens.weight")
    if embedding and _differs(embedding[:1], (seen.vocabulary,)):
        yield found("R17", f"embed_tokens.weight has {embedding[0]} rows; vocab_size is {seen.vocabulary}")
    wrong = []
    for name, shape in sorted(wanted.items()):
        have = there.get(name)
        if have is None or name == "d2t":
            continue
        if name in ("lm_head.weight", "embed_tokens.weight"):
            have, shape = have[1:], shape[1:]
        elif name in ("fc.weight", "input_norm.weight"):  # their width has rules of its own
            have, shape = have[:-1], shape[:-1]
        if _differs(have, shape):
            wrong.append(f"{name} is {list(there[name])}, not {_words(wanted[name])}")
    if wrong:
        yield found("R18", listed(wrong))


def _values(samples: Mapping[str, Sample]) -> Iterator[Finding]:
    bad, zero = [], []
    for name, sample in sorted(samples.items()):
        looked = f"{'all' if sample.whole else 'the sampled'} {sample.values} values"
        if sample.bad:
            bad.append(f"{name}: {sample.bad} of {looked} are NaN or infinite")
        elif sample.zero and not name.endswith(".bias"):
            zero.append(f"{name}: {looked} are 0")
    for found_here in (bad, zero):
        if found_here:
            yield found("R5", listed(found_here))


def reads_states(seen: View) -> bool:
    """Whether the draft has an fc over several states of the verifier."""
    return nested(seen.layer).get("use_aux_hidden_state") is not False


def listed(items: list[str], most: int = 4) -> str:
    """The first items, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + more


def _differs(have: tuple[int, ...], shape: Shape) -> bool:
    return len(have) != len(shape) or any(want is not None and size != want for size, want in zip(have, shape))


def _words(shape: Shape) -> str:
    return "[" + ", ".join("?" if side is None else str(side) for side in shape) + "]"
