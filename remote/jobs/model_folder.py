"""What a model folder holds, from names, sizes and headers: nothing of the weights is read."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import verifier_config
from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.plan.safetensors import HeaderError, read_header
from pipeline.plan.verifier_config import ConfigError, VerifierConfig

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "tokenizer_config.json",
    "vocab.json",
    "tekken.json",
)
INDEX = "model.safetensors.index.json"

_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024
_SHOWN = 3


@dataclass(frozen=True)
class ModelFacts:
    """What a model folder holds. ``problem`` is why it could not be looked into, empty when it could.

    :param weight_bytes: sizes of its weight files together.
    :param defects: why its weights are not whole, a clause each: missing shards, pointers, cut files.
    :param config: its language model's numbers; None where they cannot be had, for the reason in ``config_problem``.
    :param tokenizer_code: the tokenizer is Python code of the folder (``auto_map``).
    """

    path: str
    exists: bool = False
    has_config: bool = False
    has_weights: bool = False
    has_tokenizer: bool = False
    problem: str = ""
    weight_bytes: int = 0
    defects: tuple[str, ...] = ()
    config: Optional[VerifierConfig] = None
    config_problem: str = ""
    tokenizer_code: bool = False


@dataclass(frozen=True)
class DraftFacts:
    """The numbers of a draft's config; ``problem`` is why they cannot be had."""

    path: str
    problem: str = ""
    weight_bytes: int = 0
    hidden_size: Optional[int] = None
    vocab_size: Optional[int] = None
    draft_vocab_size: Optional[int] = None
    layers: tuple[int, ...] = ()


class ModelFolders:
    """Looks into model folders, and reads a file's header again only when the file has changed."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def model(self, path: str) -> ModelFacts:
        """What is there of a verifier. Never raises."""
        if not os.path.isdir(path):
            return ModelFacts(path)
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            return ModelFacts(path, exists=True, problem=error.strerror or str(error))
        weights = [name for name in names if Path(name).suffix in WEIGHT_SUFFIXES]
        config, config_problem = None, ""
        if "config.json" in names:
            try:
                config = verifier_config.read(path)
            except ConfigError as error:
                config_problem = str(error)
        return ModelFacts(
            path,
            exists=True,
            has_config="config.json" in names,
            has_weights=bool(weights),
            has_tokenizer=any(name in TOKENIZER_FILES for name in names),
            weight_bytes=sum(_size(path, name) for name in weights),
            defects=tuple(self._defects(path, names, weights)),
            config=config,
            config_problem=config_problem,
            tokenizer_code=bool((_object(os.path.join(path, "tokenizer_config.json")) or {}).get("auto_map")),
        )

    def _defects(self, path: str, names: list[str], weights: list[str]) -> list[str]:
        found = []
        if INDEX in names:
            index = _object(os.path.join(path, INDEX))
            mapped = index.get("weight_map") if index else None
            if not isinstance(mapped, dict) or not all(isinstance(name, str) for name in mapped.values()):
                return [f"{INDEX} cannot be read"]
            shards = sorted(set(mapped.values()))
            missing = [name for name in shards if name not in names]
            if missing:
                found.append(f"{len(missing)} of {len(shards)} shards of its index are missing: {_some(missing)}")
            weights = [name for name in shards if name in names]
        broken = [words for name in weights if (words := self._broken(path, name))]
        return found + broken[:_SHOWN] + ([f"and {len(broken) - _SHOWN} more"] if len(broken) > _SHOWN else [])

    def _broken(self, path: str, name: str) -> str:
        full = os.path.join(path, name)
        try:
            status = os.stat(full)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:
            known = self._known.get(stamp)
        if known is None:
            known = _look(full, name, status.st_size)
            with self._lock:
                if len(self._known) >= self.LIMIT:
                    self._known.clear()
                self._known[stamp] = known
        return known


def draft(path: str) -> DraftFacts:
    """The numbers of a draft's config, flat or of speculators. Never raises."""
    config = _object(os.path.join(path, "config.json"))
    if config is None:
        return DraftFacts(path, "it holds no config.json that can be read")
    layer = config.get("transformer_layer_config")
    numbers = layer if isinstance(layer, dict) else config
    nested = config.get("eagle_config")
    layers = config.get(AUX_LAYERS) or (nested.get(AUX_LAYERS) if isinstance(nested, dict) else None) or ()
    return DraftFacts(
        path,
        weight_bytes=sum(_size(path, name) for name in os.listdir(path) if Path(name).suffix in WEIGHT_SUFFIXES),
        hidden_size=_number(numbers.get("hidden_size")),
        vocab_size=_number(numbers.get("vocab_size")),
        draft_vocab_size=_number(config.get("draft_vocab_size")),
        layers=tuple(item for item in layers if isinstance(item, int)) if isinstance(layers, (list, tuple)) else (),
    )


def _look(full: str, name: str, size: int) -> str:
    try:
        if size <= _POINTER_BYTES:
            with open(full, "rb") as file:
                if file.read(len(_POINTER)) == _POINTER:
                    return f"{name} is a Git LFS pointer of {size} bytes, not the file"
        if name.endswith(".safetensors"):
            read_header(full)
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    except HeaderError as error:
        return str(error).replace(full, name)
    return "" if size else f"{name} is empty"


def _object(path: str) -> Optional[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _size(path: str, name: str) -> int:
    try:
        return os.stat(os.path.join(path, name)).st_size
    except OSError:
        return 0


def _number(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
