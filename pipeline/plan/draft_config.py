"""The flat format of an EAGLE-3 draft, which vLLM and others load: its config, its tensors and their shapes. Pure.

vLLM loads a draft that lacks a tensor, or whose layer ids it does not find, without an error and then accepts next to
nothing; so what must be there is computed here from the config and compared with the file's header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from pipeline.plan.safetensors import Header

ARCHITECTURE = "LlamaForCausalLMEagle3"

AUX_LAYERS = "eagle_aux_hidden_state_layer_ids"
"""Ids as vLLM counts: the state after layer N-1, which SGLang calls N-1. Written at the top level and nested: vLLM's V2
runner reads the first, its V1 runner both."""

EMBEDDING = "embed_tokens.weight"

_LAYER = "midlayer."

_COPIED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "attention_bias",
    "mlp_bias",
    "max_position_embeddings",
    "rope_parameters",
    "rope_theta",
    "rope_scaling",
    "initializer_range",
    "vocab_size",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
)

_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")

_NORMS = {"norm_before_residual": False, "norm_before_fc": False, "norm_output": False, "fc_norm": False}
"""How a speculators config is read where it leaves them out (``Eagle3SpeculatorConfig`` of speculators 0.9.0)."""


class DraftConfigError(ValueError):
    """The config is not that of a draft that can be exported. The message names the field."""


def flat_config(trained: Mapping[str, Any], verifier: Mapping[str, Any]) -> dict[str, Any]:
    """The flat config of a trained draft.

    :param trained: the ``config.json`` of a speculators checkpoint.
    :param verifier: the verifier's ``config.json``; gives the special tokens that the draft's own config leaves out.
    :raises DraftConfigError: when a field that is needed is missing or of a kind that the flat format cannot express.
    """
    layer = _required(trained, "transformer_layer_config", dict)
    ids = [int(number) for number in _required(trained, AUX_LAYERS, list)]
    if layer.get("model_type", "llama") != "llama":
        raise DraftConfigError(
            f"transformer_layer_config.model_type is {layer['model_type']!r}: only llama is exported"
        )
    if layer.get("num_hidden_layers") != 1:
        raise DraftConfigError("transformer_layer_config.num_hidden_layers is not 1: the flat format holds one layer")
    if trained.get("fc_norm"):
        raise DraftConfigError("fc_norm is set: the flat format has no tensors for it")
    text = verifier.get("text_config") or verifier
    config: dict[str, Any] = {"architectures": [ARCHITECTURE], "model_type": "llama"}
    config.update({name: layer[name] for name in _COPIED if layer.get(name) is not None})
    config["draft_vocab_size"] = int(_required(trained, "draft_vocab_size", int))
    # Token ids of the layer's own config are the class's defaults, not the verifier's.
    config.update({name: text[name] for name in _SPECIAL_TOKENS if text.get(name) is not None})
    config.update({name: bool(trained.get(name, default)) for name, default in _NORMS.items()})
    config.update(tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True)
    config["num_aux_hidden_states"] = len(ids)
    config[AUX_LAYERS] = ids
    config["eagle_config"] = {AUX_LAYERS: ids, "use_aux_hidden_state": True}
    return config


def flat_name(name: str) -> Optional[str]:
    """The name of a speculators tensor in the flat format; None for one that is not part of a draft."""
    if name.startswith("verifier_"):
        return None
    return _LAYER + name[len("layers.0.") :] if name.startswith("layers.0.") else name


def required_tensors(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a draft of this flat config must have; the embedding is not among them.

    :raises DraftConfigError: when a field that a shape depends on is missing.
    """
    hidden = int(_required(config, "hidden_size", int))
    heads = int(_required(config, "num_attention_heads", int))
    head_dim = int(config.get("head_dim") or hidden // heads)
    key_values = int(config.get("num_key_value_heads") or heads) * head_dim
    inner = int(_required(config, "intermediate_size", int))
    vocabulary = int(_required(config, "vocab_size", int))
    draft_vocabulary = int(config.get("draft_vocab_size") or vocabulary)
    states = len(_required(config, AUX_LAYERS, list)) * hidden
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, states),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft_vocabulary, hidden),
        _LAYER + "self_attn.q_proj.weight": (heads * head_dim, 2 * hidden),
        _LAYER + "self_attn.k_proj.weight": (key_values, 2 * hidden),
        _LAYER + "self_attn.v_proj.weight": (key_values, 2 * hidden),
        _LAYER + "self_attn.o_proj.weight": (hidden, heads * head_dim),
        _LAYER + "mlp.gate_proj.weight": (inner, hidden),
        _LAYER + "mlp.up_proj.weight": (inner, hidden),
        _LAYER + "mlp.down_proj.weight": (hidden, inner),
        _LAYER + "input_layernorm.weight": (hidden,),
        _LAYER + "hidden_norm.weight": (hidden,),
        _LAYER + "post_attention_layernorm.weight": (hidden,),
    }
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (states,)
    if draft_vocabulary != vocabulary:
        shapes["d2t"] = (draft_vocabulary,)
        shapes["t2d"] = (vocabulary,)
    return shapes


def problems(config: Mapping[str, Any], header: Header) -> list[str]:
    """What keeps the file from being the draft of this flat config, a sentence each; empty when it is.

    :raises DraftConfigError: as ``required_tensors``.
    """
    wanted = required_tensors(config)
    allowed = {**wanted, EMBEDDING: (int(config["vocab_size"]), int(config["hidden_size"]))}
    found = header.shapes
    wrong = [f"{name} is missing" for name in sorted(wanted) if name not in found]
    wrong += [f"{name} is no tensor of this draft" for name in sorted(found) if name not in allowed]
    wrong += [
        f"{name} is {list(found[name])} and must be {list(shape)}"
        for name, shape in sorted(allowed.items())
        if name in found and found[name] != shape
    ]
    wrong += [
        f"{name} is {tensor.dtype} and must be BF16"
        for name, tensor in sorted(header.tensors.items())
        if name in allowed and name not in ("d2t", "t2d") and tensor.dtype != "BF16"
    ]
    return wrong


def _required(config: Mapping[str, Any], name: str, kind: type) -> Any:
    value = config.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DraftConfigError(f"{name} is {'missing' if value is None else f'{value!r}'}")
    return value
