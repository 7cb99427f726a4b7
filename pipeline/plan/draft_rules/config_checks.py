"""R8, R19 to R21, R24, R25, R27, R29, R30, R34: what the config and the folder's path say by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.plan.draft_rules.facts import FLAT, SPECULATORS, Draft
from pipeline.plan.draft_rules.finding import Finding, found
from pipeline.plan.draft_rules.reading import named_verifier
from pipeline.plan.draft_rules.view import ARCHITECTURES, OTHER, View, architecture, nested

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
_TOP_ONLY = ("norm_before_residual", "norm_output", "fc_norm")


def check(draft: Draft, seen: View) -> Iterator[Finding]:
    """The findings of these rules."""
    config = draft.config
    if not config:
        return
    yield from _kind(config, seen)
    yield from _norms(draft, seen)
    yield from _rotary(seen.layer)
    if seen.format == FLAT and "use_cache" in config and config["use_cache"] is None:
        yield found("R19", "use_cache is null")
    path = draft.path.lower()
    if "eagle-" in path:
        yield found("R24", draft.path)
    elif "eagle3" not in path:
        yield found("R25", draft.path)
    yield from _dtype(draft)
    if draft.verifier_found is False:
        yield found("R30", f"speculators_config.verifier.name_or_path is {named_verifier(config)}")
    if seen.format == SPECULATORS:
        yield found("R34", "config.json has a speculators_config")


def _kind(config: Mapping[str, Any], seen: View) -> Iterator[Finding]:
    if seen.format == SPECULATORS:
        kind = config.get("speculators_model_type")
        if kind not in ("eagle3", "peagle"):
            yield found("R21", f"speculators_model_type is {kind!r}")
        elif seen.family == OTHER:
            yield found("R21", f"transformer_layer_config.model_type is {seen.layer.get('model_type')!r}")
        return
    if not config.get("model_type"):
        yield found("R20", "config.json has no model_type")
    name = architecture(config)
    if name not in ARCHITECTURES:
        yield found("R21", f"architectures is {name!r}" if name else "architectures is missing")


def _norms(draft: Draft, seen: View) -> Iterator[Finding]:
    config = draft.config
    if seen.format == SPECULATORS:
        if "norm_before_residual" not in config:
            yield found("R8", "norm_before_residual is absent: vLLM takes true, speculators false")
        return
    inner = nested(config)
    for name in _TOP_ONLY:
        if name in inner and bool(inner[name]) != seen.norms[name]:
            yield found("R8", f"eagle_config.{name} is {inner[name]!r}; vLLM reads it at the top level only")
    if seen.norms["norm_before_fc"] or "input_norm.weight" in draft.tensors:
        absent = [name for name in ("norm_before_residual", "norm_output") if name not in config and name not in inner]
        if absent:
            yield found("R8", f"{' and '.join(absent)} absent, taken for false; trainers that norm fc's input set them")


def _rotary(layer: Mapping[str, Any]) -> Iterator[Finding]:
    parameters = layer.get("rope_parameters")
    inner = parameters.get("rope_theta") if isinstance(parameters, Mapping) else None
    outer = layer.get("rope_theta")
    if inner is None and outer is None:
        yield found("R27", "neither rope_parameters.rope_theta nor rope_theta is set")
    elif inner is not None and outer is not None and inner != outer:
        yield found("R27", f"rope_parameters.rope_theta is {inner}, rope_theta {outer}")


def _dtype(draft: Draft) -> Iterator[Finding]:
    said = draft.config.get("dtype") or draft.config.get("torch_dtype")
    weights = Counter(tensor.dtype for tensor in draft.tensors.values() if tensor.dtype in _DTYPES)
    if said and weights:
        most = _DTYPES[weights.most_common(1)[0][0]]
        if most != str(said).replace("torch.", ""):
            yield found("R29", f"the config says {said}, the weights are {most}")
