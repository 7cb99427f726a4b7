"""The frames: their tags, and what is ignored or refused."""

from __future__ import annotations

from typing import Any

import pytest

from remote.protocol.codec import decode_line, encode_line
from remote.protocol.errors import ProtocolError
from remote.protocol.frames import (
    AgentHello,
    Bye,
    Event,
    Fault,
    Frame,
    Hello,
    Ping,
    Pong,
    Request,
    Response,
    Subscribe,
    Unsubscribe,
    frame_from_wire,
    frame_to_wire,
)

FRAMES: list[tuple[Frame, str]] = [
    (Hello((1, 2), "console", "/data", True), "hello"),
    (AgentHello(1, "abc", "h", "u", "m", "b", "3.9.1", 7, 1.5, False, roots=("/data",)), "agent"),
    (Request(1, "launch", {"stage": "serve"}, "key"), "req"),
    (Response(1, ok={"jobs": []}), "res"),
    (Response(1, error=Fault("refused", "no", "ask")), "res"),
    (Subscribe(2, "log", 0.25, {"job": "serve", "tail": 10}), "sub"),
    (Unsubscribe(2), "unsub"),
    (Event(2, "log", 1.5, 2.5, data={"lines": ["[/data]", "\x1b[31m", "\u2028", "\U0001f600", "\ud800"]}), "ev"),
    (Event(2, "log", 1.5, 2.5, error=Fault("not_found", "no such job"), dropped=3), "ev"),
    (Ping(3), "ping"),
    (Pong(3, 4.5), "pong"),
    (Bye("end of input"), "bye"),
]


@pytest.mark.parametrize(("frame", "tag"), FRAMES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_frame_survives_the_wire(frame: Frame, tag: str) -> None:
    data = decode_line(encode_line(frame_to_wire(frame)))
    assert data["t"] == tag
    assert frame_from_wire(data) == frame


def test_frames_of_the_future_are_none_and_their_new_fields_ignored() -> None:
    assert frame_from_wire({"t": "teleport", "to": "moon"}) is None
    assert frame_from_wire({"t": "ping", "n": 1, "urgent": True}) == Ping(1)


@pytest.mark.parametrize(
    "data",
    [{}, {"t": 1}, {"t": None}, {"t": "ping"}, {"t": "ping", "n": "1"}, {"t": "req", "id": 1, "op": "", "args": []}],
)
def test_broken_frames_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        frame_from_wire(data)
