"""The conversation with one agent: requests with their answers, subscriptions with their events, and the proof of life.

One task reads every frame and hands it on without waiting for anybody, so that a slow reader of one subscription delays
no answer. Another one pings; an agent that sends nothing at all for ``SILENCE_SECONDS`` counts as lost.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from eagle_console import __version__
from eagle_console.link.errors import AgentError, ConnectionLost, LinkError, LinkTimeout
from eagle_console.link.inbox import SubscriptionInbox
from eagle_console.link.transport import Channel
from remote.protocol.codec import MAX_FRAME_BYTES, decode_line, encode_line
from remote.protocol.errors import ProtocolError, RequestError
from remote.protocol.frames import (
    PING_SECONDS,
    PROTOCOL_VERSION,
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

SILENCE_SECONDS = 3 * PING_SECONDS
"""Without any frame for this long the link counts as lost: three pings were not answered."""

REQUEST_SECONDS = 60.0
"""The default time for an answer."""

SLOW_OPERATIONS = {"disk": 600.0}
"""Operations that wait for work on the host, with their time: the first pass over a large workspace."""


@dataclass(frozen=True)
class Opening:
    """The console's first words to an agent: who it is, what it works on, and the topics that it wants at once.

    They can be sent before the agent runs: it answers them as soon as it does.
    """

    hello: Hello
    subscriptions: tuple[Subscribe, ...] = ()

    @classmethod
    def of(cls, workspace: str | None, readonly: bool, topics: Sequence[str] = ()) -> Self:
        hello = Hello((PROTOCOL_VERSION,), f"eagle-console {__version__}", workspace, readonly)
        return cls(hello, tuple(Subscribe(number, topic) for number, topic in enumerate(topics, 1)))

    def encode(self) -> bytes:
        frames: list[Frame] = [self.hello, *self.subscriptions]
        return b"".join(encode_line(frame_to_wire(frame)) for frame in frames)


class AgentSession:
    """A live conversation. Made by ``start`` or ``answered``; ended by ``close`` or by the loss of the link.

    :ivar hello: what the agent said about itself.
    """

    def __init__(
        self,
        channel: Channel,
        hello: AgentHello,
        host: str,
        request_seconds: float | None,
        opening: Sequence[Subscribe] = (),
    ) -> None:
        self.hello = hello
        self._channel = channel
        self._host = host
        self._request_seconds = request_seconds
        self._numbers = itertools.count(1 + len(opening))
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._inboxes = {begun.sub: SubscriptionInbox(begun.topic, begun.args) for begun in opening}
        self._begun = {begun.topic: begun.sub for begun in opening}
        self._writing = asyncio.Lock()
        self._pings = itertools.count()
        self._answered_ping = -1
        self._news = asyncio.Event()
        self._heard = asyncio.get_running_loop().time()
        self._ended: asyncio.Future[LinkError] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._read_frames()), asyncio.create_task(self._ping())]

    @classmethod
    async def start(
        cls,
        channel: Channel,
        host: str,
        workspace: str | None = None,
        readonly: bool = False,
        request_seconds: float | None = None,
    ) -> Self:
        """Exchanges the hellos with the agent that was just started in ``channel``; parameters as for ``answered``."""
        opening = Opening.of(workspace, readonly)
        await channel.write(opening.encode())
        return await cls.answered(channel, host, opening, request_seconds)

    @classmethod
    async def answered(
        cls, channel: Channel, host: str, opening: Opening, request_seconds: float | None = None
    ) -> Self:
        """The session with an agent that was sent ``opening``; ``subscribe`` without arguments gives its topics.

        :param host: the name to use in messages.
        :param request_seconds: the time for each answer instead of ``REQUEST_SECONDS``.
        :raises AgentError: when it is not an agent that we can talk to.
        :raises ConnectionLost: when the link fails.
        """
        answer, _ = await _read_frame(channel, host)
        if isinstance(answer, Bye):
            raise AgentError(f"the agent on {host} refuses: {answer.reason}")
        if not isinstance(answer, AgentHello):
            raise AgentError(f"the agent on {host} did not introduce itself")
        return cls(channel, answer, host, request_seconds, opening.subscriptions)

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        """The answer to one operation.

        :raises RequestError: when the agent refuses.
        :raises LinkTimeout: when no answer comes in time.
        :raises ConnectionLost, AgentError: when the link ends before the answer.
        """
        self._check_alive()
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        seconds = self._request_seconds or SLOW_OPERATIONS.get(op, REQUEST_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._send(Request(number, op, args or {}, key))
                return await answer
        except TimeoutError:
            raise LinkTimeout(f"no answer from {self._host} to {op!r} in {seconds:g} s") from None
        finally:
            self._answers.pop(number, None)
            answer.cancel()

    async def subscribe(
        self, topic: str, interval: float = 1.0, args: dict[str, Any] | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a topic until the iterator is closed.

        :raises RequestError: when the agent ends the subscription.
        :raises ConnectionLost, AgentError: when the link ends.
        """
        self._check_alive()
        begun = None if args else self._begun.pop(topic, None)
        if begun is not None and begun in self._inboxes:
            number, inbox = begun, self._inboxes[begun]
        else:
            inbox = SubscriptionInbox(topic, args or {})
            number = await self._begin(inbox, topic, interval)
        try:
            while True:
                if number not in self._inboxes and inbox.empty:  # it was paused
                    self._check_alive()
                    number = await self._begin(inbox, topic, interval)
                event = await inbox.take()
                if event.error is not None:
                    raise _request_error(event.error)
                yield event
        finally:
            if self._inboxes.pop(number, None) is not None and not self._ended.done():
                try:
                    await self._send(Unsubscribe(number))
                except LinkError:
                    pass  # there is nobody left to tell

    async def lost(self) -> LinkError:
        """Waits for the end of the link and gives its reason."""
        return await asyncio.shield(self._ended)

    @property
    def silent_seconds(self) -> float:
        """How long the agent has said nothing."""
        return asyncio.get_running_loop().time() - self._heard

    async def heard(self) -> None:
        """Waits until the agent says something."""
        self._news.clear()
        await self._news.wait()

    async def probe(self, seconds: float) -> bool:
        """Whether the agent answers a ping that is sent now within ``seconds``."""
        number = next(self._pings)
        try:
            async with asyncio.timeout(seconds):
                await self._send(Ping(number))
                while self._answered_ping < number:
                    await self.heard()
        except (TimeoutError, LinkError):
            return False
        return True

    def abandon(self) -> None:
        """Gives the link up as lost."""
        self._end(ConnectionLost(f"the link to {self._host} was given up"))

    async def close(self) -> None:
        """Ends the conversation: the agent sees the end of its input and ends too. A link that is lost is left."""
        lost = self._ended.done()
        self._end(ConnectionLost(f"the session with {self._host} was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await (self._channel.abort() if lost else self._channel.close())

    async def _begin(self, inbox: SubscriptionInbox, topic: str, interval: float) -> int:
        number = next(self._numbers)
        self._inboxes[number] = inbox
        try:
            await self._send(Subscribe(number, topic, interval, inbox.resume_args))
        except BaseException:
            self._inboxes.pop(number, None)
            raise
        return number

    async def _send(self, frame: Frame) -> None:
        async with self._writing:
            await self._channel.write(encode_line(frame_to_wire(frame)))

    def _check_alive(self) -> None:
        if self._ended.done():
            raise self._ended.result()

    async def _read_frames(self) -> None:
        try:
            while True:
                frame, size = await _read_frame(self._channel, self._host)
                self._heard = asyncio.get_running_loop().time()
                if isinstance(frame, Pong):
                    self._answered_ping = frame.n
                self._news.set()
                if isinstance(frame, Response):
                    self._deliver(frame)
                elif isinstance(frame, Event):
                    await self._hand_over(frame, size)
                elif isinstance(frame, Bye):
                    raise ConnectionLost(f"the agent on {self._host} ended: {frame.reason}")
        except LinkError as error:
            self._end(error)

    def _deliver(self, response: Response) -> None:
        answer = self._answers.get(response.id)
        if answer is None or answer.done():
            return  # the one who asked has given up
        if response.error is not None:
            answer.set_exception(_request_error(response.error))
        else:
            answer.set_result(response.ok or {})

    async def _hand_over(self, event: Event, size: int) -> None:
        inbox = self._inboxes.get(event.sub)
        if inbox is None:
            return  # cancelled while it was on its way
        inbox.add(event, size)
        if inbox.full:
            del self._inboxes[event.sub]
            await self._send(Unsubscribe(event.sub))

    async def _ping(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await self._send(Ping(next(self._pings)))
                await asyncio.sleep(PING_SECONDS)
                if clock() - self._heard > SILENCE_SECONDS:
                    raise TimeoutError
        except TimeoutError:
            self._end(ConnectionLost(f"{self._host} does not answer any more"))
        except LinkError as error:
            self._end(error)

    def _end(self, reason: LinkError) -> None:
        if self._ended.done():
            return
        self._ended.set_result(reason)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(reason)
        for inbox in self._inboxes.values():
            inbox.end(reason)


async def _read_frame(channel: Channel, host: str) -> tuple[Frame | None, int]:
    """The next frame and its length in bytes."""
    line = await channel.read_line(MAX_FRAME_BYTES)
    if not line.endswith(b"\n"):
        words = channel.stderr.text().strip().splitlines()
        said = f": {words[-1][:300]}" if words else ""
        raise ConnectionLost(f"the agent on {host} ended{said}")
    try:
        return frame_from_wire(decode_line(line)), len(line)
    except ProtocolError as error:
        raise AgentError(f"the agent on {host} broke the protocol: {error}") from None


def _request_error(fault: Fault) -> RequestError:
    return RequestError(fault.code, fault.message, fault.remedy)
