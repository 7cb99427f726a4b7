"""The agent's outbox over a pipe: order, newest-wins, bounds, and frames that do not fit."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from remote.outbox import BACKLOG_BYTES, BACKLOG_LIMIT_BYTES, Outbox, OutboxClosed
from remote.protocol.codec import MAX_FRAME_BYTES
from remote.protocol.frames import Bye, Event, Pong, Response

PIECE = 100_000


class Pipe:
    """The console's end of an outbox. Nothing is read until the test asks for it."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        self.outbox = Outbox(self.sink)
        self._buffer = b""

    def read(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            data = os.read(self.source, 65536)
            assert data
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        frame: dict[str, Any] = json.loads(line)
        return frame

    def fill(self) -> None:
        """Puts so much that the writer stands still in the middle of a frame."""
        self.outbox.put(big(0))
        deadline = time.monotonic() + 5
        while self.outbox.flush(0.0) or self.outbox._waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.source)
    os.close(made.sink)


def big(number: int) -> Response:
    return Response(number, ok={"text": "x" * PIECE})


def sample(number: int, sub: int = 1) -> Event:
    return Event(sub, "gpus", 1.0, 1.0, data={"n": number})


def test_frames_come_in_order(pipe: Pipe) -> None:
    for number in range(20):
        pipe.outbox.put(Pong(number, 0.0))
    assert [pipe.read()["n"] for _ in range(20)] == list(range(20))
    assert pipe.outbox.flush(5.0)


def test_the_newest_sample_takes_the_place_of_the_older(pipe: Pipe) -> None:
    pipe.fill()
    for number in range(5):
        pipe.outbox.offer(1, sample(number))
        pipe.outbox.offer(2, sample(10 + number, sub=2))
        pipe.outbox.put(Pong(number, 0.0))
    pipe.outbox.forget(2)
    assert pipe.read()["t"] == "res"
    event = pipe.read()
    assert (event["sub"], event["data"], event["dropped"]) == (1, {"n": 4}, 4)
    assert [pipe.read()["n"] for _ in range(5)] == list(range(5))
    pipe.outbox.offer(1, sample(6))
    assert pipe.read()["dropped"] == 0


def test_put_waits_until_the_backlog_is_small(pipe: Pipe) -> None:
    pipe.fill()
    count = BACKLOG_BYTES // PIECE + 5
    done: list[int] = []

    def produce() -> None:
        for number in range(1, count + 1):
            pipe.outbox.put(big(number))
            done.append(number)

    producer = threading.Thread(target=produce)
    producer.start()
    time.sleep(0.2)
    assert BACKLOG_BYTES // PIECE <= len(done) < count
    assert [pipe.read()["id"] for _ in range(count + 1)] == list(range(count + 1))
    producer.join(5)
    assert len(done) == count


def test_without_waiting_there_is_a_last_limit(pipe: Pipe) -> None:
    with pytest.raises(OutboxClosed):
        for number in range(BACKLOG_LIMIT_BYTES // PIECE + 10):
            pipe.outbox.put(big(number), wait=False)
    with pytest.raises(OutboxClosed):
        pipe.outbox.offer(1, sample(1))


def test_a_closed_pipe_ends_everyone_who_waits() -> None:
    pipe = Pipe()
    pipe.fill()
    errors: list[Exception] = []

    def produce() -> None:
        try:
            while True:
                pipe.outbox.put(big(1))
        except OutboxClosed as error:
            errors.append(error)

    producer = threading.Thread(target=produce)
    producer.start()
    os.close(pipe.source)
    producer.join(5)
    assert len(errors) == 1
    assert not pipe.outbox.flush(0.1)
    os.close(pipe.sink)


def test_flush_gives_up_in_time(pipe: Pipe) -> None:
    pipe.fill()
    started = time.monotonic()
    assert not pipe.outbox.flush(0.1)
    assert time.monotonic() - started < 1.0
    pipe.read()
    assert pipe.outbox.flush(5.0)


def test_a_list_that_does_not_fit_is_cut_and_says_so(pipe: Pipe) -> None:
    entries = [{"path": f"/data/{number}", "name": "x" * 200} for number in range(3000)]
    pipe.outbox.offer(1, Event(1, "disk", 1.0, 1.0, data={"workspace": "/data", "entries": entries, "problem": ""}))
    data = pipe.read()["data"]
    kept = data["entries"]
    assert kept == entries[: len(kept)]
    assert MAX_FRAME_BYTES * 0.9 < len(json.dumps(kept)) < MAX_FRAME_BYTES * 1.1
    assert data["problem"] == f"only the first {len(kept)} of 3000 entries are shown"


@pytest.mark.parametrize("value", ["x" * 300_000, float("nan"), object()], ids=["long", "nan", "object"])
def test_what_cannot_be_sent_is_an_error_in_its_place(pipe: Pipe, value: Any) -> None:
    pipe.outbox.put(Response(7, ok={"text": value}))
    answer = pipe.read()
    assert (answer["id"], answer["ok"], answer["error"]["code"]) == (7, None, "failed")
    pipe.outbox.offer(1, Event(1, "gpus", 1.0, 1.0, data={"text": value}))
    assert pipe.read()["error"]["code"] == "failed"
    pipe.outbox.put(Bye("over"))
    assert pipe.read()["t"] == "bye"
