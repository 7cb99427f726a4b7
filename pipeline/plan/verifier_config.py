"""What the pipeline must know of a verifier, from its ``config.json`` alone; nested ``text_config`` and all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

FILE = "config.json"


class ConfigError(ValueError):
    """A verifier's config cannot be used. ``field`` is what is wrong in it, empty where it is the whole file."""

    def __init__(self, cause: str, file: str, field: str = "") -> None:
        super().__init__(f"{file}{': ' + field if field else ''}: {cause}")
        self.cause, self.file, self.field = cause, file, field


@dataclass(frozen=True)
class VerifierConfig:
    """The numbers of a verifier's language model.

    :param path: the model's folder.
    :param nested: they stand in ``text_config``.
    :param remote_code: the folder brings Python code of its own (``auto_map``).
    :param dtype: of the weights, as the config names it; None where it does not.
    :param cache_values: numbers that the KV cache keeps for one token in one layer; None where it cannot be known.
    :param latent: these are a latent vector (MLA), of which each GPU keeps the whole.
    """

    path: str
    model_type: str
    layers: int
    hidden_size: int
    vocab_size: int
    max_positions: Optional[int] = None
    dtype: Optional[str] = None
    nested: bool = False
    remote_code: bool = False
    intermediate_size: Optional[int] = None
    cache_values: Optional[int] = None
    latent: bool = False


def read(folder: str) -> VerifierConfig:
    """The config of the model in ``folder``.

    :raises ConfigError: when the file is missing, is not JSON, or lacks a number; it names file and field.
    """
    return parse(load(folder), folder)


def load(folder: str) -> dict[str, Any]:
    """The object in the folder's ``config.json``.

    :raises ConfigError: when it cannot be had.
    """
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", path) from None
    except ValueError as error:
        raise ConfigError(f"it is not JSON ({error})", path) from None
    if not isinstance(data, dict):
        raise ConfigError("it is not a JSON object", path)
    return data


def parse(data: Mapping[str, Any], folder: str) -> VerifierConfig:
    """The same from the object itself.

    :raises ConfigError: naming the field that is missing or no positive number.
    """
    nested = isinstance(data.get("text_config"), dict)
    text: Mapping[str, Any] = data["text_config"] if nested else data
    where = "text_config." if nested else ""

    def number(name: str) -> int:
        value = text.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ConfigError(f"it must be a positive whole number and is {value!r}", _file(folder), where + name)
        return value

    dtype = text.get("dtype") or text.get("torch_dtype") or data.get("dtype") or data.get("torch_dtype")
    positions = text.get("max_position_embeddings")
    return VerifierConfig(
        path=folder,
        model_type=str(text.get("model_type", "")),
        layers=number("num_hidden_layers"),
        hidden_size=number("hidden_size"),
        vocab_size=number("vocab_size"),
        max_positions=_positive(positions),
        dtype=dtype if isinstance(dtype, str) else None,
        nested=nested,
        remote_code=bool(data.get("auto_map") or text.get("auto_map")),
        intermediate_size=_positive(text.get("intermediate_size")),
        cache_values=_cache_values(text),
        latent=_positive(text.get("kv_lora_rank")) is not None,
    )


def aux_layers(layers: int) -> tuple[int, int, int]:
    """The layers whose states the draft reads, as vLLM counts them: speculators' own default.

    :raises ValueError: when the model is too small to have three different ones.
    """
    ids = (2, layers // 2, layers - 3)
    if not ids[0] < ids[1] < ids[2]:
        raise ValueError(f"a verifier of {layers} layers has no three different layers 2, n/2 and n-3")
    return ids


def extraction_layers(layers: int) -> tuple[int, ...]:
    """The layers that an extraction server saves: the draft's three, then the last, from which the targets come.

    :raises ValueError: as ``aux_layers``.
    """
    return (*aux_layers(layers), layers)


def _cache_values(text: Mapping[str, Any]) -> Optional[int]:
    rank = _positive(text.get("kv_lora_rank"))
    if rank is not None:
        return rank + (_positive(text.get("qk_rope_head_dim")) or 0)
    heads = _positive(text.get("num_attention_heads"))
    if heads is None:
        return None
    width = _positive(text.get("head_dim")) or int(text["hidden_size"]) // heads
    return 2 * width * (_positive(text.get("num_key_value_heads")) or heads)


def _positive(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _file(folder: str) -> str:
    return os.path.join(folder, FILE)
