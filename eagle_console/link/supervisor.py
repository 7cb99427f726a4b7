"""Keeps a console connected to one host: connects, watches, and comes back after a loss until it is told to stop.

What was known of the host survives a loss; only the link's state and the ages of the values change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from eagle_console.client import HostClient
from eagle_console.link import hostkeys
from eagle_console.link.asking import LinkPrompter
from eagle_console.link.backoff import Backoff
from eagle_console.link.connect import Endpoint, Target, open_session, reach
from eagle_console.link.errors import (
    AddressError,
    AuthenticationError,
    ConnectError,
    HostKeyError,
    LinkError,
    NoPython,
    NotConnected,
    UnknownHostKey,
)
from eagle_console.link.prompts import PatientPrompter
from eagle_console.link.publisher import Publisher
from eagle_console.link.questions import Prompt
from eagle_console.link.session import AgentSession
from eagle_console.state import (
    STALE_SECONDS,
    HostKeyQuestion,
    HostState,
    LinkState,
    LinkStatus,
    with_event,
    with_hello,
    with_link,
)
from remote.protocol import frames
from remote.protocol.errors import FAILED, ProtocolError, RequestError
from remote.protocol.frames import Event, Fault

TOPICS = (frames.TOPIC_GPUS, frames.TOPIC_HOST, frames.TOPIC_DISK, frames.TOPIC_JOBS)
SAMPLE_SECONDS = 1.0

CONNECT_SECONDS = 60.0
"""For everything up to the agent's hello, the upload of the bundle over a slow line included."""

RESUBSCRIBE_SECONDS = 5.0
"""Before a topic that the agent ended with an error is asked for again."""

HOPELESS = (AddressError, AuthenticationError, HostKeyError, NoPython)
"""Trying these again by itself helps nobody, and servers ban addresses that keep failing to log in."""


class Supervisor:
    """One host of a screen.

    ``run()`` is the whole life of it: start it as a task and cancel it to disconnect. Every change of the host's state
    goes to ``publish``, at most four times a second; it is called on the event loop and must not block. The other
    methods are called from the same loop at any time.

    :param target: from ``connect.resolve``.
    :param publish: gets each new ``HostState``.
    """

    def __init__(self, target: Target, publish: Callable[[HostState], None]) -> None:
        self._target = target
        self._publisher = Publisher(HostState(target.name), publish)
        self._session: AgentSession | None = None
        self._backoff = Backoff()
        self._wake = asyncio.Event()
        self._asker = LinkPrompter(self._publisher)
        self._prompter = PatientPrompter(self._asker)

    @property
    def state(self) -> HostState:
        """What is known of the host now."""
        return self._publisher.state

    @property
    def client(self) -> HostClient:
        """The operations of the connected host.

        :raises NotConnected: when the link is down.
        """
        if self._session is None:
            link = self.state.link
            raise NotConnected(f"{self._target.name} is not connected" + (f": {link.detail}" if link.detail else ""))
        return HostClient(self._session)

    def reconnect_now(self) -> None:
        """Ends the wait for the next try or the rest after a failure that needs a person; drops a link gone silent."""
        self._backoff.attempt = 0
        if self._session is None:
            self._wake.set()
        elif self._session.silent_seconds > STALE_SECONDS:
            self._wake.set()
            self._session.abandon()

    def trust_host_key(self, question: HostKeyQuestion) -> None:
        """Trusts the key that a person accepted, for good, and connects again.

        :raises HostKeyError: when our known_hosts file cannot be written.
        """
        hostkeys.trust(question)
        self.reconnect_now()

    def answer_prompt(self, prompt: Prompt, answer: str | None) -> None:
        """Answers the question of ``LinkState.ASKING``; None cancels it, and the link rests until ``reconnect_now``.

        An answer to a question that is not open any more is dropped.
        """
        self._asker.answer(prompt, answer)

    async def run(self) -> None:
        """Connects and stays connected until it is cancelled."""
        endpoint: Endpoint | None = None
        try:
            async with AsyncExitStack() as stack:
                while True:
                    self._wake.clear()
                    self._link(LinkStatus(LinkState.CONNECTING, attempt=self._backoff.attempt))
                    try:
                        if endpoint is None:
                            endpoint = await stack.enter_async_context(reach(self._target, self._prompter))
                        await self._one_link(endpoint)
                    except LinkError as error:
                        await self._pause(error)
        finally:
            self._link(LinkStatus(LinkState.CLOSED))
            self._publisher.flush()

    async def _one_link(self, endpoint: Endpoint) -> None:
        """One connection, from its making to its loss.

        :raises LinkError: always, with the reason of the end.
        """
        async with AsyncExitStack() as stack:
            try:
                async with self._prompter.timeout(CONNECT_SECONDS):
                    connected = await stack.enter_async_context(open_session(endpoint))
            except TimeoutError:
                raise ConnectError(f"no connection to {self._target.name} in {CONNECT_SECONDS:g} s") from None
            session, since = connected.session, _now()
            self._publisher.update(with_hello(self.state, session.hello))
            self._link(LinkStatus(LinkState.LIVE))
            watching = [asyncio.create_task(self._watch(session, topic)) for topic in TOPICS]
            self._session = session
            try:
                raise await session.lost()
            finally:
                self._session = None
                self._backoff.lived(_now() - since)
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, session: AgentSession, topic: str) -> None:
        """Reduces the events of a topic to the state until the link ends."""
        while True:
            try:
                async for event in session.subscribe(topic, SAMPLE_SECONDS):
                    self._reduce(event)
            except (RequestError, ProtocolError) as error:
                self._reduce(Event(0, topic, 0.0, 0.0, error=Fault(FAILED, str(error))))
            except LinkError:
                return  # ``_one_link`` reports it
            await asyncio.sleep(RESUBSCRIBE_SECONDS)

    def _reduce(self, event: Event) -> None:
        self._publisher.update(with_event(self.state, event, time.monotonic()))

    async def _pause(self, error: LinkError) -> None:
        """Shows why there is no link, and waits until it is time for the next try."""
        attempt = self._backoff.attempt
        status = LinkStatus(LinkState.FAILED, error.message, error.remedy, attempt)
        timeout: float | None = None
        if isinstance(error, UnknownHostKey):
            status = replace(status, state=LinkState.UNKNOWN_HOST_KEY, question=error.question)
        elif not isinstance(error, HOPELESS):
            timeout = self._backoff.next_delay()
            status = replace(status, state=LinkState.WAITING, attempt=attempt + 1, retry_at=time.monotonic() + timeout)
        self._link(status)
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            pass  # it is time

    def _link(self, status: LinkStatus) -> None:
        self._publisher.update(with_link(self.state, status))


def _now() -> float:
    return asyncio.get_running_loop().time()
