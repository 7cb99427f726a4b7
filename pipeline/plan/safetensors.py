"""The header of a safetensors file: names, types and shapes of its tensors, without reading their data.

The format (safetensors README, "Format"): 8 bytes with the header's length, little-endian; the header as JSON, name to
``{"dtype", "shape", "data_offsets": [begin, end]}`` with an optional ``__metadata__``; then the data. The offsets count
from the end of the header, leave no holes and end with the file, which is how a cut file shows.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, BinaryIO

HEADER_LIMIT = 100_000_000
"""Bytes; the reference implementation refuses longer headers."""

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


class HeaderError(ValueError):
    """The file is no safetensors file, or not a whole one. The message names the file and what is wrong."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: ``dtype`` as the format names it (``BF16``), its shape, and where its data lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """The tensors of a file by name. ``begin`` and ``end`` of a tensor are offsets in the file itself."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.tensors.items()}


def read_header(path: str) -> Header:
    """The header of a file that is complete.

    :raises OSError: when it cannot be read.
    :raises HeaderError: when it is cut, longer than its header says, or no safetensors file.
    """
    with open(path, "rb") as file:
        return header_of(file, path)


def header_of(file: BinaryIO, path: str) -> Header:
    """The header of an open file that is complete; it is read from its beginning.

    :param path: names the file in errors.
    :raises OSError: when it cannot be read.
    :raises HeaderError: when it is cut, longer than its header says, or no safetensors file.
    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    return parse_header(path, size, length, file.read(length) if length <= min(HEADER_LIMIT, size) else b"")


def parse_header(path: str, size: int, length: int, raw: bytes) -> Header:
    """The same from what was read of the file.

    :param size: of the whole file in bytes.
    :param length: what its first 8 bytes say.
    :param raw: the ``length`` bytes behind them; anything where the length cannot be right.
    :raises HeaderError: as ``read_header``.
    """
    if size < 8:
        raise HeaderError(f"{path} is cut: {size} bytes are less than a header")
    if length > HEADER_LIMIT:
        raise HeaderError(f"{path} is no safetensors file: its header would have {length} bytes")
    if 8 + length > size:
        raise HeaderError(f"{path} is cut: {size} bytes, its header alone needs {8 + length}")
    try:
        data = json.loads(raw)
        metadata = {str(name): str(value) for name, value in (data.pop("__metadata__", None) or {}).items()}
        tensors = {name: _tensor(item, 8 + length) for name, item in data.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise HeaderError(f"{path} is no safetensors file: its header cannot be read") from None
    _check_layout(path, tensors, 8 + length, size)
    return Header(tensors, metadata)


def _tensor(item: dict[str, Any], start: int) -> TensorInfo:
    begin, end = (int(offset) for offset in item["data_offsets"])
    return TensorInfo(str(item["dtype"]), tuple(int(side) for side in item["shape"]), start + begin, start + end)


def _check_layout(path: str, tensors: dict[str, TensorInfo], start: int, size: int) -> None:
    expected = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        elements = 1
        for side in tensor.shape:
            elements *= side
        if tensor.begin != expected or tensor.end < tensor.begin:
            raise HeaderError(f"{path} is damaged: the data of {name} does not follow what is before it")
        bits = DTYPE_BITS.get(tensor.dtype)
        if bits is not None and tensor.bytes * 8 != elements * bits:
            raise HeaderError(
                f"{path} is damaged: {name} has {tensor.bytes} bytes for {tensor.dtype} {list(tensor.shape)}"
            )
        expected = tensor.end
    if size < expected:
        raise HeaderError(f"{path} is cut: {size} bytes of {expected}")
    if size > expected:
        raise HeaderError(f"{path} has {size - expected} bytes after its last tensor")
