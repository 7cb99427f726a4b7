"""The facts of a draft's folder: its config, the headers of its weights, small tensors, samples of the large ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from pipeline.plan.draft_rules import values
from pipeline.plan.draft_rules.facts import Draft, FileProblem, Sample, Verifier
from pipeline.plan.draft_rules.folder import Folder
from pipeline.plan.safetensors import HEADER_LIMIT, Header, HeaderError, TensorInfo, parse_header

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"

SMALL_BYTES = 512 * 1024
"""A tensor up to this size is read whole."""

WINDOW_BYTES = 8 * 1024
WINDOWS = 4
"""Of a larger one, so many pieces, spread evenly from its first byte to its last."""

JSON_LIMIT = 32 * 1024 * 1024
"""Bytes of a config or an index that are read at most."""


def read_draft(folder: Folder) -> Draft:
    """The facts of a folder. What is wrong with its files is among them.

    :raises OSError: when the folder itself cannot be read.
    """
    names = folder.names()
    problems: list[FileProblem] = []
    config = _config(folder, names, problems)
    tensors: dict[str, TensorInfo] = {}
    places: dict[str, str] = {}
    for file in _weight_files(folder, names, problems):
        header = _header(folder, file, problems)
        for name, tensor in (header.tensors if header else {}).items():
            tensors[name], places[name] = tensor, file
    samples: dict[str, Sample] = {}
    mappings: dict[str, Optional[tuple[int, ...]]] = {"d2t": None, "t2d": None}
    for name, tensor in tensors.items():
        try:
            if name in mappings:
                raw = _whole(folder, places[name], tensor)
                mappings[name] = (values.integers if name == "d2t" else values.marked)(tensor.dtype, raw)
            elif (found := _sample(folder, places[name], tensor)) is not None:
                samples[name] = found
        except OSError as error:
            problems.append(FileProblem("F3", f"{places[name]} cannot be read: {error.strerror}"))
    found_verifier = _verifier_found(folder, config)
    return Draft(
        folder.path, config, tensors, mappings["d2t"], mappings["t2d"], samples, tuple(problems), found_verifier
    )


def read_verifier(folder: Folder) -> Verifier:
    """The verifier's config.

    :raises OSError: when it cannot be read. :raises ValueError: when it is no JSON object.
    """
    data = json.loads(folder.read(CONFIG, 0, JSON_LIMIT))
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    return Verifier(folder.path, data)


def _config(folder: Folder, names: list[str], problems: list[FileProblem]) -> dict[str, Any]:
    if CONFIG not in names:
        problems.append(FileProblem("F1", f"there is no {CONFIG}"))
        return {}
    try:
        data = json.loads(folder.read(CONFIG, 0, JSON_LIMIT))
    except (OSError, ValueError, RecursionError) as error:
        problems.append(FileProblem("F1", f"{CONFIG}: {getattr(error, 'strerror', None) or error}"))
        return {}
    if not isinstance(data, dict):
        problems.append(FileProblem("F1", f"{CONFIG} is no JSON object"))
        return {}
    return data


def _weight_files(folder: Folder, names: list[str], problems: list[FileProblem]) -> list[str]:
    """The files that an engine reads: those that the index names, else every safetensors file."""
    there = [name for name in names if name.endswith(".safetensors")]
    if INDEX in names:
        try:
            listed = json.loads(folder.read(INDEX, 0, JSON_LIMIT))["weight_map"]
            wanted = sorted({str(file) for file in listed.values()})
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            problems.append(FileProblem("F3", f"{INDEX} cannot be read"))
            return there
        problems.extend(
            FileProblem("F3", f"{file} is named by {INDEX} and is not there") for file in wanted if file not in there
        )
        return [file for file in wanted if file in there]
    if not there:
        problems.append(FileProblem("F2", "there is no file *.safetensors"))
    return there


def _header(folder: Folder, file: str, problems: list[FileProblem]) -> Optional[Header]:
    try:
        size = folder.size(file)
        length = int.from_bytes(folder.read(file, 0, 8), "little")
        raw = folder.read(file, 8, length) if length <= min(HEADER_LIMIT, size) else b""
        return parse_header(file, size, length, raw)
    except HeaderError as error:
        problems.append(FileProblem("F3", str(error)))
    except OSError as error:
        problems.append(FileProblem("F3", f"{file} cannot be read: {error.strerror}"))
    return None


def _whole(folder: Folder, file: str, tensor: TensorInfo) -> bytes:
    """A mapping; one that is far larger than any vocabulary is not read."""
    return folder.read(file, tensor.begin, tensor.bytes) if tensor.bytes <= 16 * SMALL_BYTES else b""


def _sample(folder: Folder, file: str, tensor: TensorInfo) -> Optional[Sample]:
    if tensor.bytes <= SMALL_BYTES:
        return values.sample(tensor.dtype, folder.read(file, tensor.begin, tensor.bytes), True)
    last = (tensor.bytes - WINDOW_BYTES) // 8 * 8  # whole values of any type
    starts = [tensor.begin + last * number // (WINDOWS - 1) // 8 * 8 for number in range(WINDOWS)]
    return values.sample(tensor.dtype, b"".join(folder.read(file, start, WINDOW_BYTES) for start in starts), False)


def _verifier_found(folder: Folder, config: Mapping[str, Any]) -> Optional[bool]:
    path = named_verifier(config)
    return folder.exists(path) if os.path.isabs(path) else None


def named_verifier(config: Mapping[str, Any]) -> str:
    """The verifier that a speculators config names; empty where it names none."""
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) else ""
