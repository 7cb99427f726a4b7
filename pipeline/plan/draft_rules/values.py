"""Values out of a tensor's raw bytes, little-endian as safetensors stores them, without numpy."""

from __future__ import annotations

import sys
from array import array
from typing import Optional

from pipeline.plan.draft_rules.facts import Sample

_EXPONENTS = {"BF16": ("H", 0x7F80), "F16": ("H", 0x7C00), "F32": ("I", 0x7F800000), "F64": ("Q", 0x7FF << 52)}
"""The unsigned type of the same width, and the bits that are all set in NaN and infinity (IEEE 754)."""

_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B"}


def sample(dtype: str, raw: bytes, whole: bool) -> Optional[Sample]:
    """What the bytes of floating-point values hold; None for a type that is not known here, or no bytes."""
    if dtype not in _EXPONENTS or not raw:
        return None
    code, exponent = _EXPONENTS[dtype]
    values = _array(code, raw)
    if raw.count(0) == len(raw):
        return Sample(len(values), whole, zero=True)
    bad = sum(1 for value in values if value & exponent == exponent)
    # A zero may carry a sign: only the bits below it count.
    sign = 1 << (8 * values.itemsize - 1)
    return Sample(len(values), whole, bad, zero=not any(value & ~sign for value in values))


def integers(dtype: str, raw: bytes) -> Optional[tuple[int, ...]]:
    """Whole numbers; None for another type."""
    return tuple(_array(_INTEGERS[dtype], raw)) if dtype in _INTEGERS else None


def marked(dtype: str, raw: bytes) -> Optional[tuple[int, ...]]:
    """The places of the true values; None for a type that is neither truth values nor whole numbers."""
    if dtype == "BOOL":
        return tuple(place for place, value in enumerate(raw) if value)
    found = integers(dtype, raw)
    return None if found is None else tuple(place for place, value in enumerate(found) if value)


def _array(code: str, raw: bytes) -> array[int]:
    values = array(code)
    values.frombytes(raw[: len(raw) - len(raw) % values.itemsize])
    if sys.byteorder == "big":
        values.byteswap()
    return values
