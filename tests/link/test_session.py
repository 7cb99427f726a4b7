"""The session against an agent that is played by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eagle_console.link import session as session_module
from eagle_console.link.errors import AgentError, ConnectionLost, LinkTimeout
from eagle_console.link.inbox import MAX_WAITING
from eagle_console.link.session import AgentSession, Opening
from eagle_console.link.transport import Channel
from remote.protocol.codec import MAX_FRAME_BYTES
from remote.protocol.errors import RequestError

HELLO = {
    "t": "agent", "protocol": 1, "agent": "x", "host": "h", "user": "u", "machine_id": "m", "boot_id": "b",
    "python": "3.9.1", "pid": 1, "wall": 1.0, "readonly": False, "field_of_the_future": [],
}  # fmt: skip


class PlayedAgent(Channel):
    """The other end of the session: ``say`` sends a frame to the console, ``hear`` gives what the console sent."""

    def __init__(self) -> None:
        super().__init__()
        self._to_console: asyncio.Queue[bytes] = asyncio.Queue()
        self._from_console: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def say(self, frame: dict[str, Any] | bytes) -> None:
        self._to_console.put_nowait(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")

    async def hear(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(5):
            while True:
                frame = await self._from_console.get()
                if frame["t"] == kind:
                    return frame

    async def _read(self, count: int) -> bytes:
        return await self._to_console.get()

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._from_console.put_nowait(json.loads(line))

    async def wait(self) -> int | None:
        return 0

    async def close(self) -> None:
        self.say(b"")

    async def abort(self) -> None:
        self.say(b"")


@asynccontextmanager
async def talking(request_seconds: float | None = None) -> AsyncIterator[tuple[AgentSession, PlayedAgent]]:
    agent = PlayedAgent()
    agent.say(HELLO)
    session = await AgentSession.start(agent, "box", "/data", request_seconds=request_seconds)
    try:
        yield session, agent
    finally:
        await session.close()


def event(sub: int, topic: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"t": "ev", "sub": sub, "topic": topic, "mono": 1.0, "wall": 1.0, "data": data}


async def test_answers_find_their_requests_in_any_order() -> None:
    async with talking() as (session, agent):
        first = asyncio.create_task(session.request("a"))
        second = asyncio.create_task(session.request("b", {"x": 1}, key="k"))
        numbers = {frame["op"]: frame["id"] for frame in [await agent.hear("req"), await agent.hear("req")]}
        agent.say({"t": "res", "id": numbers["b"], "ok": {"of": "b"}})
        agent.say({"t": "res", "id": 999, "ok": {}})
        agent.say({"t": "frame of the future"})
        agent.say({"t": "res", "id": numbers["a"], "error": {"code": "refused", "message": "no", "remedy": "ask"}})
        assert await second == {"of": "b"}
        with pytest.raises(RequestError) as caught:
            await first
        assert (caught.value.code, caught.value.remedy) == ("refused", "ask")


async def test_no_answer_in_time_is_a_timeout_and_a_late_one_is_ignored() -> None:
    async with talking(request_seconds=0.05) as (session, agent):
        with pytest.raises(LinkTimeout):
            await session.request("slow")
        agent.say({"t": "res", "id": (await agent.hear("req"))["id"], "ok": {}})
        later = asyncio.create_task(session.request("next"))
        agent.say({"t": "res", "id": (await agent.hear("req"))["id"], "ok": {"n": 2}})
        assert await later == {"n": 2}


async def test_a_loss_reaches_everyone_who_waits() -> None:
    async with talking() as (session, agent):
        request = asyncio.create_task(session.request("a"))
        events = session.subscribe("jobs")
        waiting = asyncio.create_task(events.__anext__())
        await agent.hear("sub")
        agent.stderr.add(b"Killed\n")
        agent.say(b"")
        for task in (request, waiting):
            with pytest.raises(ConnectionLost, match="Killed"):
                await task
        assert isinstance(await session.lost(), ConnectionLost)
        with pytest.raises(ConnectionLost):
            await session.request("b")


@pytest.mark.parametrize(
    "line", [b"noise\n", b'{"t": "res", "id": "one"}\n', b"x" * (MAX_FRAME_BYTES + 1), b"[]\n"], ids=range(4)
)
async def test_a_broken_frame_ends_the_session(line: bytes) -> None:
    async with talking() as (session, agent):
        agent.say(line)
        assert isinstance(await session.lost(), AgentError)


async def test_a_bye_names_the_reason() -> None:
    async with talking() as (session, agent):
        agent.say({"t": "bye", "reason": "the console was silent for too long"})
        assert "silent for too long" in str(await session.lost())


async def test_an_agent_that_says_nothing_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PING_SECONDS", 0.05)
    monkeypatch.setattr(session_module, "SILENCE_SECONDS", 0.15)
    async with talking() as (session, agent):
        for _ in range(4):
            ping = await agent.hear("ping")
            agent.say({"t": "pong", "n": ping["n"], "mono": 1.0})
        async with asyncio.timeout(5):
            assert "does not answer" in str(await session.lost())


async def test_of_samples_the_newest_waits_and_counts_the_rest() -> None:
    async with talking() as (session, agent):
        events = session.subscribe("gpus")
        first = asyncio.create_task(events.__anext__())
        sub = (await agent.hear("sub"))["sub"]
        agent.say(event(sub, "gpus", {"n": 0}))
        assert (await first).data == {"n": 0}
        for n in range(1, 6):
            agent.say(event(sub, "gpus", {"n": n}))
        probe = asyncio.create_task(session.request("x"))
        agent.say({"t": "res", "id": (await agent.hear("req"))["id"], "ok": {}})
        await probe  # all the events before it have been read
        newest = await events.__anext__()
        assert (newest.data, newest.dropped) == ({"n": 5}, 4)
        await events.aclose()
        assert (await agent.hear("unsub"))["sub"] == sub


async def test_a_slow_reader_of_a_log_pauses_it_and_misses_nothing() -> None:
    async with talking() as (session, agent):
        events = session.subscribe("log", 0.25, {"job": "serve", "tail": 10})
        reading = asyncio.create_task(events.__anext__())
        sub = (await agent.hear("sub"))["sub"]

        def chunk(n: int) -> dict[str, Any]:
            return {"job": "serve-1", "offset": n, "next_offset": n + 1, "size": 9999, "lines": [str(n)]}

        agent.say(event(sub, "log", chunk(0)))
        await reading
        for n in range(1, MAX_WAITING + 50):
            agent.say(event(sub, "log", chunk(n)))
        assert (await agent.hear("unsub"))["sub"] == sub
        seen = [(await events.__anext__()).data["offset"] for _ in range(MAX_WAITING)]
        assert seen == list(range(1, MAX_WAITING + 1))
        reading = asyncio.create_task(events.__anext__())
        again = await agent.hear("sub")
        assert again["args"] == {"job": "serve-1", "offset": MAX_WAITING + 1}
        agent.say(event(again["sub"], "log", chunk(MAX_WAITING + 1)))
        assert (await reading).data["offset"] == MAX_WAITING + 1


async def test_a_subscription_that_the_agent_ends_raises() -> None:
    async with talking() as (session, agent):
        reading = asyncio.create_task(session.subscribe("log", args={"job": "x"}).__anext__())
        sub = (await agent.hear("sub"))["sub"]
        agent.say({**event(sub, "log", {}), "data": None, "error": {"code": "not_found", "message": "no job"}})
        with pytest.raises(RequestError, match="no job"):
            await reading


async def test_topics_of_the_opening_come_without_being_asked_for_again() -> None:
    agent = PlayedAgent()
    opening = Opening.of("/data", False, ("gpus", "jobs"))
    await agent.write(opening.encode())
    agent.say(HELLO)
    session = await AgentSession.answered(agent, "box", opening)
    assert [(await agent.hear("sub"))["topic"] for _ in range(2)] == ["gpus", "jobs"]
    agent.say(event(2, "jobs", {"jobs": []}))
    jobs = session.subscribe("jobs")
    assert (await jobs.__anext__()).data == {"jobs": []}
    await jobs.aclose()
    assert (await agent.hear("unsub"))["sub"] == 2
    again = asyncio.create_task(session.subscribe("jobs").__anext__())
    assert (await agent.hear("sub"))["sub"] == 3  # a second subscription is one of its own
    again.cancel()
    await session.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [({"t": "bye", "reason": "protocol: versions"}, "versions"), ({"t": "pong", "n": 1, "mono": 1.0}, "introduce")],
)
async def test_a_start_without_a_hello_fails(answer: dict[str, Any], reason: str) -> None:
    agent = PlayedAgent()
    agent.say(answer)
    with pytest.raises(AgentError, match=reason):
        await AgentSession.start(agent, "box")
