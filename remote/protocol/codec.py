"""Records to JSON lines and back.

A record is a frozen dataclass whose fields are str, int, float, bool, bytes (base64 on the wire), ``Optional``,
homogeneous tuples, string-keyed dicts and other records. Decoding ignores unknown fields, gives missing ones their
default and refuses wrong types, so that two versions can talk and a broken peer cannot put a string where a number is
expected.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import secrets
from functools import cache
from typing import Any, Callable, TypeVar, Union, get_args, get_origin, get_type_hints

from remote.protocol.errors import ProtocolError

MAX_FRAME_BYTES = 256 * 1024
"""The longest line on the wire, newline included. Larger things travel in chunks."""

_BYTES_GO_HERE = secrets.token_hex(16)
"""Stands for bytes while their frame is written. No text of a host can hold it: it is another one in each process."""

Json = dict[str, Any]
T = TypeVar("T")
_Decoder = Callable[[Any, str], Any]


def to_wire(record: Any) -> Any:
    """The JSON form of a record: fields that are ``None`` stay as null, tuples become lists."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: to_wire(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, (list, tuple)):
        return [to_wire(item) for item in record]
    if isinstance(record, dict):
        return {key: to_wire(value) for key, value in record.items()}
    return record


def from_wire(cls: type[T], data: Any) -> T:
    """The record of class ``cls`` that ``data`` describes.

    :raises ProtocolError: when a required field is missing or a value has the wrong type; the message names the field.
    """
    kind: Any = cls
    record: T = _record_decoder(kind)(data, cls.__name__)
    return record


def encode_line(data: Json) -> bytes:
    """One frame as a line.

    :raises ProtocolError: when the line would be longer than ``MAX_FRAME_BYTES``.
    """
    blobs: list[bytes] = []

    def set_aside(value: Any) -> str:
        if not isinstance(value, bytes):
            raise TypeError(f"{type(value).__name__} cannot be sent")
        blobs.append(base64.b64encode(value))
        return _BYTES_GO_HERE

    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=set_aside)
    line = text.encode("ascii") + b"\n"
    if blobs:  # base64 needs none of the escaping that makes JSON slow for large texts
        pieces = line.split(_BYTES_GO_HERE.encode("ascii"))
        line = b"".join(piece + blob for piece, blob in zip(pieces, [*blobs, b""]))
    if len(line) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return line


def decode_line(line: bytes) -> Json:
    """The object on one line of the wire.

    :raises ProtocolError: when the line is cut, too long, not JSON or not an object.
    """
    if not line.endswith(b"\n"):
        raise ProtocolError("the stream ended in the middle of a frame")
    if len(line) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME_BYTES}")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProtocolError("a frame is not a JSON object")
    return data


@cache
def _decoder(annotation: Any) -> _Decoder:
    """The function that decodes one annotation, built once from its type."""
    if dataclasses.is_dataclass(annotation):
        kind: Any = annotation
        return _record_decoder(kind)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Union:
        inner = _decoder(next(arg for arg in args if arg is not type(None)))
        return lambda data, where: None if data is None else inner(data, where)
    if origin is tuple:
        item = _decoder(args[0])
        return lambda data, where: tuple(
            item(value, f"{where}[{index}]") for index, value in enumerate(_expect(data, list, where))
        )
    if origin is dict:
        value_of = _decoder(args[1])
        return lambda data, where: {
            key: value_of(value, f"{where}.{key}") for key, value in _expect(data, dict, where).items()
        }
    if annotation is Any:
        return lambda data, where: data
    if annotation is bytes:
        return _decode_bytes
    if annotation is float:
        return _finite
    return lambda data, where: _expect(data, annotation, where)


@cache
def _record_decoder(cls: Any) -> _Decoder:
    hints = get_type_hints(cls)
    fields = [(field, _decoder(hints[field.name])) for field in dataclasses.fields(cls)]

    def decode(data: Any, where: str) -> Any:
        source = _expect(data, dict, where)
        values: Json = {}
        for field, decode_field in fields:
            if field.name in source:
                values[field.name] = decode_field(source[field.name], f"{where}.{field.name}")
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ProtocolError(f"{where} lacks the field {field.name}")
        return cls(**values)

    return decode


def _finite(data: Any, where: str) -> float:
    try:
        number = float(_expect(data, (int, float), where))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProtocolError(f"{where} is not a finite number")
    return number


def _decode_bytes(data: Any, where: str) -> bytes:
    try:
        return binascii.a2b_base64(_expect(data, str, where))
    except (binascii.Error, ValueError):
        raise ProtocolError(f"{where} is not base64") from None


def _expect(data: Any, kind: Any, where: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ProtocolError(f"{where} has the wrong type: {type(data).__name__}")
    return data
