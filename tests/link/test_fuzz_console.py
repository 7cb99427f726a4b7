"""A hostile agent against the console's session: it never crashes, hangs, grows, or does what nobody asked for."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
from fixtures import hostile_frames as hostile
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_console.client import HostClient
from eagle_console.link.errors import LinkError
from eagle_console.link.inbox import MAX_WAITING_BYTES
from eagle_console.link.session import AgentSession
from eagle_console.link.transport import Channel
from eagle_console.state import HostState, with_event, with_hello
from remote.protocol import frames
from remote.protocol.codec import MAX_FRAME_BYTES, to_wire
from remote.protocol.disk import DiskSnapshot
from remote.protocol.errors import ProtocolError, RequestError
from remote.protocol.frames import AgentHello, frame_to_wire
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.jobs import Job, JobEvent, JobList, LogChunk

HELLO = AgentHello(1, "x", "h", "u", "m", "b", "3.9.1", 1, 1.0, False)
JOB = Job("serve-20260101-000000-abcd", "serve", "service", "running", 1.0, "h", {})
RECORDS: tuple[Any, ...] = (
    GpuSnapshot(driver="ok"),
    DiskSnapshot(workspace="/w", problem=""),
    JobList((JOB,)),
    JOB,
    LogChunk(JOB.id, 0, 5, 5, ("text",)),
    JobEvent(1, 1.0, "phase", "text"),
)
TOPICS = ("gpus", "host", "disk", "jobs")
ENOUGH = 5000
MEGABYTE = 1_000_000

records = st.one_of(*(hostile.mutated(to_wire(record)) for record in RECORDS), hostile.objects)
faults = st.builds(lambda *words: dict(zip(("code", "message", "remedy"), words, strict=True)), *[hostile.words] * 3)
typed = st.one_of(
    st.builds(
        lambda sub, topic, data, error, mono: {
            "t": "ev", "sub": sub, "topic": topic, "mono": mono, "wall": mono, "data": data, "error": error,
        },
        hostile.small,
        st.one_of(st.sampled_from([*TOPICS, "log", "events"]), hostile.words),
        st.one_of(st.none(), records),
        st.one_of(st.none(), st.none(), st.none(), faults),
        hostile.numbers,
    ),
    st.builds(
        lambda number, ok, error: {"t": "res", "id": number, "ok": ok, "error": error},
        hostile.small,
        st.one_of(st.none(), records),
        st.one_of(st.none(), faults),
    ),
    st.builds(lambda n, mono: {"t": "pong", "n": n, "mono": mono}, hostile.whole, hostile.numbers),
    st.builds(lambda tag, fields: {**fields, "t": tag}, st.sampled_from(["", "x", "exec", "é"]), hostile.objects),
    st.just({"t": "req", "id": 1, "op": "launch", "args": {"stage": "serve"}}),
    st.just({"t": "sub", "sub": 1, "topic": "log"}),
    st.just({"t": "ping", "n": 1}),
    st.just(frame_to_wire(replace(HELLO, readonly=True, workspace="/somewhere/else"))),
)  # fmt: skip
conversations = st.tuples(
    st.lists(hostile.lines(typed), min_size=34, max_size=80), hostile.broken(typed), st.integers(1, 4096)
)


class HostileAgent(Channel):
    """Says what it was given in pieces of ``step`` bytes, then hangs up. Remembers what the console said."""

    def __init__(self, said: bytes, step: int) -> None:
        super().__init__()
        self._said = frame_line(frame_to_wire(HELLO)) + said
        self._step, self._at = step, 0
        self.heard: list[dict[str, Any]] = []

    async def _read(self, count: int) -> bytes:
        await asyncio.sleep(0)
        self._at += self._step
        return self._said[self._at - self._step : self._at]

    async def write(self, data: bytes) -> None:
        self.heard += [json.loads(line) for line in data.splitlines()]

    async def wait(self) -> int | None:
        return 0

    async def close(self) -> None:
        return

    async def abort(self) -> None:
        return


def frame_line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


async def converse(said: bytes, step: int) -> HostileAgent:
    """What a screen does, with this agent at the other end, until the link has ended."""
    agent = HostileAgent(said, step)
    unexpected: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unexpected.append(context))
    session = await AgentSession.start(agent, "box", "/w")
    client = HostClient(session)
    state = [with_hello(HostState("box"), session.hello)]

    async def watch(topic: str) -> None:
        async for event in session.subscribe(topic):
            try:
                state[0] = with_event(state[0], event, 1.0)
            except ProtocolError:
                continue

    async def read(job: str) -> None:
        async for _ in client.follow_log(job):
            pass

    work: list[Awaitable[Any]] = [*(watch(topic) for topic in TOPICS), read(JOB.id)]
    work += [client.gpus(), client.jobs(), client.job(JOB.id), client.host()]
    async with asyncio.timeout(10):  # less than the silence after which any link counts as lost
        ends = await asyncio.gather(*work, return_exceptions=True)
        assert isinstance(await session.lost(), LinkError)
        await session.close()
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, (LinkError, RequestError, ProtocolError)):
            raise end
    assert not unexpected
    assert len(state[0].problems) <= len(frames.__dict__)
    return agent


def test_whatever_an_agent_says_the_console_only_asks_what_it_was_told_to() -> None:
    said: Counter[str] = Counter()

    @settings(hostile.ONE_PASS, max_examples=150 * hostile.EFFORT)
    @given(conversations)
    def talk(conversation: tuple[list[bytes], bytes, int]) -> None:
        typed_lines, last, step = conversation
        data = b"".join(typed_lines) + last
        agent = asyncio.run(converse(data, max(step, len(data) // 200)))
        said["frames"] += len(typed_lines) + 1
        kinds = Counter(frame["t"] for frame in agent.heard)
        assert set(kinds) <= {"hello", "sub", "unsub", "req", "ping"}
        asked = [frame["op"] for frame in agent.heard if frame["t"] == "req"]
        assert sorted(asked) == sorted({"gpus", "jobs", "job", "host"}.intersection(asked))
        assert {frame["topic"] for frame in agent.heard if frame["t"] == "sub"} <= {*TOPICS, "log"}

    talk()
    sys.stdout.write(f"\n{said['frames']} frames" + "\n")
    assert said["frames"] >= ENOUGH


@pytest.mark.parametrize("line", hostile.TORN, ids=lambda line: repr(line[:40]))
def test_what_is_no_frame_ends_the_session_at_once(line: bytes) -> None:
    asyncio.run(converse(line + b'{"t":"pong","n":1,"mono":1.0}\n' * 3, 4096))


async def test_a_flood_costs_a_bounded_amount_of_memory() -> None:
    """Frames of nearly the largest size and the worst shape, for a log that nobody reads and for nobody."""
    wide = {"job": JOB.id, "next_offset": 1, "wide": [[]] * 80_000}
    frame = {"t": "ev", "sub": 1, "topic": "log", "mono": 1, "wall": 1, "data": wide}
    line = frame_line(frame).replace(b" ", b"")
    assert len(line) < MAX_FRAME_BYTES
    stranger = frame_line({**frame, "sub": 99}).replace(b" ", b"")
    agent = HostileAgent(line * 20 + stranger * 20, 65536)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    session = await AgentSession.start(agent, "box", "/w")
    log = session.subscribe("log", 1.0, {"job": JOB.id})
    reading = asyncio.create_task(log.__anext__())
    await session.lost()
    await asyncio.gather(reading, return_exceptions=True)
    await session.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    sys.stdout.write(f"\na flood of {40 * len(line) / 1e6:.0f} MB took {grown / 1e6:.0f} MB" + "\n")
    assert {"t": "unsub", "sub": 1} in agent.heard
    assert grown < 25 * MAX_WAITING_BYTES + 50 * MEGABYTE, f"{grown / 1e6:.0f} MB"
