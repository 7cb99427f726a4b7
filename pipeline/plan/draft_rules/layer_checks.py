"""R9 to R12, R18, R23 and R32: which states of the verifier the draft reads, and whether fc fits them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.plan.draft_rules.catalogue import ERROR, NOTE
from pipeline.plan.draft_rules.facts import SGLANG, SPECULATORS, VLLM, Draft, Verifier, positive
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.tensor_checks import reads_states
from pipeline.plan.draft_rules.view import View

DROPS_LAST = ("deepseek", "kimi")


def check(draft: Draft, seen: View, verifier: Optional[Verifier], convention: Optional[str]) -> Iterator[Finding]:
    """The findings of these rules.

    :param convention: how the config's layer ids count, as one of ``facts.CONVENTIONS``; None where nobody has said.
    """
    if not reads_states(seen):
        if "fc.weight" in draft.tensors:
            yield found("R23", "eagle_config.use_aux_hidden_state is false; fc.weight is there")
        return
    layers = verifier.number("num_hidden_layers") if verifier else None
    used = seen.ids or seen.nested
    if not used:
        taken = f"2, {layers // 2}, {layers - 3}" if layers else "2, n/2, n-3"
        yield found("R9", f"{AUX_LAYERS} is nowhere in config.json; vLLM takes {taken}")
    else:
        if not seen.ids:
            yield found("R10", f"eagle_config says {list(seen.nested)}, the top level nothing")
        elif seen.nested and seen.nested != seen.ids:
            yield found("R9", f"the top level says {list(seen.ids)}, eagle_config {list(seen.nested)}")
        yield from _ids(used, layers, convention)
    yield from _width(draft, seen, len(set(used)) if used else None)
    if verifier and layers and layers in used and _kind(verifier).startswith(DROPS_LAST):
        yield found("R32", f"layer {layers} is the last of a {_kind(verifier)} verifier")


def _ids(ids: tuple[int, ...], layers: Optional[int], convention: Optional[str]) -> Iterator[Finding]:
    if convention == SGLANG:
        yield found("R9", f"{list(ids)} count as SGLang counts; vLLM needs {[number + 1 for number in ids]}")
        return
    if len(set(ids)) != len(ids):
        yield found("R9", f"{list(ids)} names a layer twice; vLLM takes it once", ERROR)
    elif list(ids) != sorted(ids):
        yield found("R9", f"{list(ids)} are not sorted; vLLM gives the states as {sorted(ids)}")
    outside = [number for number in ids if number < 0 or (layers is not None and number > layers)]
    if outside:
        yield found("R9", f"the verifier of {layers} layers has no state {outside[0]}", ERROR)
    if convention == VLLM:
        return
    if layers and ids == (1, layers // 2 - 1, layers - 4):
        yield found("R9", f"{list(ids)} are one less than the usual layers of {layers}: so SGLang counts")
    elif layers is None and ids[0] == 1:
        yield found("R9", f"{list(ids)} begin at 1, as they mostly do where SGLang counts", NOTE)


def _width(draft: Draft, seen: View, captured: Optional[int]) -> Iterator[Finding]:
    """fc's width is what vLLM builds it for, and what the verifier gives at run time."""
    tensor = draft.tensors.get("fc.weight")
    hidden = seen.target_hidden
    if tensor is None or len(tensor.shape) != 2 or hidden is None:
        return
    width, built = tensor.shape[1], seen.states * hidden
    counted = positive(seen.layer.get("num_aux_hidden_states"))
    if captured is not None and not seen.nested and counted is None and captured != seen.states:
        where = "speculators' format passes no count on" if seen.format == SPECULATORS else "eagle_config names none"
        yield found("R12", f"{captured} layers at the top level; {where}, so fc is sized for {seen.states}")
    elif width == built and captured in (None, seen.states):
        return
    elif width % hidden == 0 and seen.ids + seen.nested:
        reads = f"fc.weight reads {width // hidden} states of {hidden}"
        yield found("R11", f"{reads}; the config names {captured} layers and sizes it for {seen.states}")
    else:
        yield found("R18", f"fc.weight reads {width} values; {seen.states} states of {hidden} are {built}")


def _kind(verifier: Verifier) -> str:
    return str(verifier.text.get("model_type") or verifier.config.get("model_type") or "")
