"""The arguments of an operation, as a console sends them: taken out of the request with their types checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, TypeVar

from remote.protocol.codec import from_wire
from remote.protocol.errors import BAD_ARGUMENT, ProtocolError, RequestError

T = TypeVar("T")


def record(kind: type[T], data: Any) -> T:
    """The record that an argument describes.

    :raises RequestError: ``bad_argument`` where it describes none; so do all functions here.
    """
    try:
        return from_wire(kind, data)
    except ProtocolError as error:
        raise RequestError(BAD_ARGUMENT, str(error)) from None


def text(args: Mapping[str, Any], name: str) -> str:
    """A text that is not empty."""
    value = args.get(name)
    if not isinstance(value, str) or not value:
        raise RequestError(BAD_ARGUMENT, f"{name} must be a text")
    return value


def optional_text(args: Mapping[str, Any], name: str) -> str:
    """A text that may be empty or absent."""
    value = args.get(name, "")
    if not isinstance(value, str):
        raise RequestError(BAD_ARGUMENT, f"{name} must be a text")
    return value


def texts(args: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts that are not empty; nothing where it is absent."""
    value = args.get(name)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item for item in value):
        raise RequestError(BAD_ARGUMENT, f"{name} must be a list of texts")
    return tuple(value)


def number(args: Mapping[str, Any], name: str) -> Optional[int]:
    """A whole number that is not negative, or None where it is absent."""
    value = args.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(BAD_ARGUMENT, f"{name} must be a whole number, 0 or more")
    return value
