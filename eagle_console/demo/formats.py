"""Small files in the formats of a training run, with valid headers and values that mean nothing."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from functools import cache

BLOCK = 4096
_WIDTHS = {"BF16": 2, "I64": 8, "BOOL": 1}
_DATE = (2026, 1, 1, 0, 0, 0)  # the same bytes each time


def filler(size: int, seed: int) -> bytes:
    """``size`` bytes that no file system can compress away, the same for the same seed."""
    pool = _pool()
    start = seed * 7919 % len(pool)
    return (pool[start:] + pool * (size // len(pool) + 1))[:size]


def safetensors(tensors: dict[str, tuple[str, tuple[int, ...]]], seed: int) -> bytes:
    """A safetensors file: an 8-byte length, a JSON header padded to 8 bytes, then the tensors without gaps.

    :param tensors: data type (BF16, I64, BOOL) and shape by name.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + _WIDTHS[dtype] * _product(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + filler(offset, seed)


def torch_file(name: str, state: dict[str, object], payload: int, seed: int) -> bytes:
    """A file as ``torch.save`` writes it: a zip without compression of ``data.pkl``, ``version`` and storages.

    :param state: what ``torch.load`` gives back.
    :param payload: bytes of one storage that the state does not refer to: the size of real optimizer states.
    """
    members = {
        "data.pkl": pickle.dumps(state, protocol=2),
        "byteorder": b"little",
        "data/0": filler(payload, seed),
        "version": b"3\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}/{member}", _DATE), data)
    return buffer.getvalue()


def blocks(size: int) -> int:
    """Bytes that a file of this size takes on a file system with blocks of 4 KiB."""
    return -(-size // BLOCK) * BLOCK


@cache
def _pool() -> bytes:
    return random.Random(20).randbytes(1024 * 1024)  # filler for a demo, not a secret


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for length in shape:
        result *= length
    return result
