"""A draft's config as vLLM 0.32 reads it, in both formats: the values it takes, and the tensors it builds by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.plan.draft_rules.facts import SPECULATORS, Draft, numbers, positive

LLAMA, QWEN3, OTHER = "llama", "qwen3", "other"

ARCHITECTURES = {
    "LlamaForCausalLMEagle3": LLAMA,
    "Eagle3LlamaForCausalLM": LLAMA,
    "LlamaForCausalLM": LLAMA,  # vLLM puts Eagle3 in front
    "Eagle3Qwen2_5vlForCausalLM": LLAMA,
    "Eagle3Qwen3vlForCausalLM": LLAMA,
    "Eagle3MiniMaxM2ForCausalLM": LLAMA,
    "PEagleDraftModel": LLAMA,
    "PeagleLlamaForCausalLM": LLAMA,
    "Eagle3Qwen3ForCausalLM": QWEN3,
    "Qwen3ForCausalLM": QWEN3,
    "PeagleQwen3ForCausalLM": QWEN3,
    "Eagle3DeepseekV2ForCausalLM": OTHER,
    "Eagle3DeepseekV3ForCausalLM": OTHER,
    "DeepseekV2ForCausalLM": OTHER,
    "DeepseekV3ForCausalLM": OTHER,
}
"""Of the registry of vLLM 0.32, and the family whose tensors are known here."""

MOST = 64
"""Layers, states, letters of a name: no draft has more of them, and a config may say anything."""

DEFAULT_STATES = 3
"""How many states vLLM takes fc to read where neither num_aux_hidden_states nor eagle_config says it."""

Shape = tuple[Optional[int], ...]
"""None where the config does not say."""


@dataclass(frozen=True)
class View:
    """The values that decide, as vLLM takes them.

    :param family: ``LLAMA``, ``QWEN3``, or ``OTHER`` for layers whose tensors are not known here.
    :param layer: the object that describes the layer: the flat config itself, or ``transformer_layer_config``.
    :param ids: the layer ids at the top level, ``nested`` those in ``eagle_config``; empty where there are none.
    :param states: how many states vLLM sizes fc for.
    """

    format: str
    family: str
    layer: Mapping[str, Any]
    hidden: Optional[int]
    target_hidden: Optional[int]
    vocabulary: Optional[int]
    draft_vocabulary: Optional[int]
    ids: tuple[int, ...]
    nested: tuple[int, ...]
    states: int
    norms: Mapping[str, bool]

    @property
    def reduced(self) -> bool:
        """The draft's vocabulary is a part of the verifier's."""
        return None not in (self.draft_vocabulary, self.vocabulary) and self.draft_vocabulary != self.vocabulary


def view(draft: Draft) -> View:
    """The config's view. Never raises: what is missing is None."""
    config = draft.config
    layer: Mapping[str, Any] = config
    if draft.format == SPECULATORS:
        given = config.get("transformer_layer_config")
        layer = given if isinstance(given, Mapping) else {}
    nested_config = nested(config)
    hidden, vocabulary = positive(layer.get("hidden_size")), positive(layer.get("vocab_size"))
    ids = numbers(config.get(AUX_LAYERS))
    # vLLM's SpeculatorsConfig passes on neither eagle_config nor num_aux_hidden_states: fc is sized for three.
    inner_ids = () if draft.format == SPECULATORS else numbers(nested_config.get(AUX_LAYERS))
    family = _family(config, layer, draft.format)
    return View(
        format=draft.format,
        family=family,
        layer=layer,
        hidden=hidden,
        target_hidden=positive(config.get("target_hidden_size")) or hidden,
        vocabulary=vocabulary,
        draft_vocabulary=positive(config.get("draft_vocab_size")) or vocabulary,
        ids=ids,
        nested=inner_ids,
        states=_states(layer, family, ids, inner_ids),
        norms=_norms(config, nested_config, draft.format),
    )


def nested(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object ``eagle_config``; empty where there is none."""
    value = config.get("eagle_config")
    return value if isinstance(value, Mapping) else {}


def layer_name(name: str) -> str:
    """A tensor's name with the layer in speculators' spelling; vLLM takes both."""
    return "layers.0." + name[len("midlayer.") :] if name.startswith("midlayer.") else name


def expected(seen: View) -> dict[str, Shape]:
    """Every tensor that vLLM builds for this config, d2t among them; names in speculators' spelling.

    Empty of the layer's own tensors where the family is ``OTHER``.
    """
    hidden, states = seen.hidden, _times(seen.target_hidden, seen.states)
    shapes: dict[str, Shape] = {
        "fc.weight": (hidden, states),
        "norm.weight": (hidden,),
        "lm_head.weight": (seen.draft_vocabulary, hidden),
        "embed_tokens.weight": (seen.vocabulary, hidden),
    }
    if seen.norms["norm_before_fc"]:
        shapes["input_norm.weight"] = (states,)
    if seen.norms["fc_norm"]:
        shapes.update({f"fc_norm.{number}.weight": (seen.target_hidden,) for number in range(min(seen.states, MOST))})
    if seen.reduced:
        shapes["d2t"] = (seen.draft_vocabulary,)
    if seen.family != OTHER:
        for index in range(min(positive(seen.layer.get("num_hidden_layers")) or 1, MOST)):
            shapes.update(_layer_shapes(seen, index))
    return shapes


def _layer_shapes(seen: View, index: int) -> dict[str, Shape]:
    layer, hidden = seen.layer, seen.hidden
    heads = positive(layer.get("num_attention_heads"))
    head_dim = positive(layer.get("head_dim")) or (hidden // heads if hidden and heads else None)
    queries = _times(heads, head_dim)
    keys = _times(positive(layer.get("num_key_value_heads")) or heads, head_dim)
    inner = positive(layer.get("intermediate_size"))
    seen_by_attention = _times(hidden, 2) if index == 0 else hidden
    shapes: dict[str, Shape] = {
        "self_attn.q_proj.weight": (queries, seen_by_attention),
        "self_attn.k_proj.weight": (keys, seen_by_attention),
        "self_attn.v_proj.weight": (keys, seen_by_attention),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if index == 0:
        shapes["hidden_norm.weight"] = (hidden,)
    if seen.family == QWEN3:
        shapes.update({"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)})
    if layer.get("attention_bias") is True:
        shapes.update({f"self_attn.{name}_proj.bias": (size,) for name, size in zip("qkv", (queries, keys, keys))})
    return {f"layers.{index}.{name}": shape for name, shape in shapes.items()}


def _family(config: Mapping[str, Any], layer: Mapping[str, Any], form: str) -> str:
    if form == SPECULATORS:
        kind = layer.get("model_type", LLAMA)
        return kind if kind in (LLAMA, QWEN3) else OTHER
    return ARCHITECTURES.get(architecture(config), OTHER)


def architecture(config: Mapping[str, Any]) -> str:
    """The first name in ``architectures``; empty where there is none."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, (list, tuple)) and names else ""


def _states(layer: Mapping[str, Any], family: str, ids: tuple[int, ...], inner_ids: tuple[int, ...]) -> int:
    """llama_eagle3.py counts the nested ids only; qwen3_eagle3.py counts those at the top level first."""
    said = positive(layer.get("num_aux_hidden_states"))
    if family == QWEN3:
        said = positive(layer.get("num_aux_layers")) or said or len(ids)
    return said or len(inner_ids) or DEFAULT_STATES


def _norms(config: Mapping[str, Any], nested_config: Mapping[str, Any], form: str) -> dict[str, bool]:
    """llama_eagle3.py reads norm_before_fc at both places, the others at the top only; speculators/algos.py defaults
    norm_before_residual to true, a flat config to false."""
    found = {name: bool(config.get(name)) for name in ("norm_output", "fc_norm")}
    found["norm_before_residual"] = bool(config.get("norm_before_residual", form == SPECULATORS))
    before = config.get("norm_before_fc", False)
    found["norm_before_fc"] = bool(before if form == SPECULATORS else nested_config.get("norm_before_fc", before))
    return found


def _times(left: Optional[int], right: Optional[int]) -> Optional[int]:
    return None if left is None or right is None else left * right
