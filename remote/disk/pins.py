"""Pins: paths that a person protects from every prune. They are lines of the journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from remote.journal import Line
from remote.protocol.codec import from_wire
from remote.protocol.errors import ProtocolError
from remote.protocol.trash import Pin

EVENT_PIN = "pin"


def pins(lines: Iterable[Line]) -> dict[str, Pin]:
    """The pins that stand, by their absolute paths."""
    standing: dict[str, Pin] = {}
    for line in lines:
        if line.event != EVENT_PIN:
            continue
        try:
            pin = from_wire(Pin, line.data)
        except ProtocolError:
            continue
        standing.pop(pin.path, None)
        if pin.pinned:
            standing[pin.path] = pin
    return standing


def protecting(standing: Iterable[str], path: str) -> str:
    """The pinned path that a deletion of ``path`` would touch: itself, something in it, what holds it; or nothing."""
    for pinned in standing:
        if pinned == path or pinned.startswith(path + "/") or path.startswith(pinned + "/"):
            return pinned
    return ""
