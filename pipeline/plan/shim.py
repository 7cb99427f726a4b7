"""A verifier's config as transformers knows it by itself: for tools that run no code of the model's folder.

speculators' EAGLE-3 trainer reads the verifier's config without ``trust_remote_code`` (0.9.0, ``eagle3/core.py``), so a
folder like Kimi-K2.5's, with nested ``text_config`` and remote code, needs a stand-in: the language model's numbers at
the top, under the type of the architecture that it shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SAME_AS = {"kimi_k2": "deepseek_v3", "kimi_k25": "deepseek_v3", "kimi_linear": "deepseek_v3"}
"""Types that come with remote code, and the one of transformers whose config has the same numbers."""

_ARCHITECTURES = {"deepseek_v3": "DeepseekV3ForCausalLM", "llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_INHERITED = ("bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", "tie_word_embeddings")
"""What may stand beside ``text_config`` instead of in it."""


def needed(config: Mapping[str, Any]) -> bool:
    """Whether the config names code of the model's own folder, at the top or in its language model."""
    text = config.get("text_config")
    return bool(config.get("auto_map") or (isinstance(text, Mapping) and text.get("auto_map")))


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The stand-in: the language model's config, flat, without remote code.

    :raises ValueError: when the type is one that nothing is known to be the same as.
    """
    text = config["text_config"] if isinstance(config.get("text_config"), Mapping) else config
    found = {name: config[name] for name in _INHERITED if config.get(name) is not None}
    found.update({name: value for name, value in text.items() if name not in ("auto_map", "architectures")})
    kind = str(found.get("model_type", ""))
    found["model_type"] = SAME_AS.get(kind, kind)
    architecture = _ARCHITECTURES.get(found["model_type"])
    if architecture is None:
        raise ValueError(f"model_type {kind!r} comes with code of its own, and no plain config is known for it")
    found["architectures"] = [architecture]
    return found
