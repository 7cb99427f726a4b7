"""A screen's link to one host: keeps it up, and reduces what comes over it to one state.

What was known of the host survives a loss; only the link's state and the ages of the values change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from eagle_console.client import HostClient
from eagle_console.link import hostkeys
from eagle_console.link.asking import LinkPrompter
from eagle_console.link.connect import Target
from eagle_console.link.errors import LinkError, UnknownHostKey
from eagle_console.link.keeper import Keeper
from eagle_console.link.moving import MovingSession
from eagle_console.link.publisher import Publisher
from eagle_console.link.questions import Prompt
from eagle_console.link.surroundings import Surroundings
from eagle_console.link.transport import Transport
from eagle_console.state import (
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

TOPICS = (frames.TOPIC_GPUS, frames.TOPIC_HOST, frames.TOPIC_DISK, frames.TOPIC_JOBS, frames.TOPIC_ADOPTED)

RESUBSCRIBE_SECONDS = 5.0
"""Before a topic that the agent ended with an error is asked for again."""


class Supervisor:
    """One host of a screen.

    ``run()`` is the whole life of it: start it as a task and cancel it to disconnect. Every change of the host's state
    goes to ``publish``, at most four times a second; it is called on the event loop and must not block. The other
    methods are called from the same loop at any time.

    :param target: from ``connect.resolve``.
    :param publish: gets each new ``HostState``.
    """

    def __init__(
        self,
        target: Target,
        publish: Callable[[HostState], None],
        surroundings: Surroundings | None = None,
    ) -> None:
        self._publisher = Publisher(HostState(target.name), publish)
        self._prompter = LinkPrompter(self._publisher)
        self._keeper = Keeper(target, self._told, topics=TOPICS, prompter=self._prompter, surroundings=surroundings)
        self._session = MovingSession(self._keeper)
        self._person = asyncio.Event()

    @property
    def state(self) -> HostState:
        """What is known of the host now."""
        return self._publisher.state

    @property
    def client(self) -> HostClient:
        """The operations of the connected host. What it subscribes to goes on over the next connections.

        :raises NotConnected: when the link is down.
        """
        _ = self._keeper.live
        return HostClient(self._session)

    @property
    def transport(self) -> Transport:
        """The connection of the moment, for a shell and for ports.

        :raises NotConnected: when the link is down.
        """
        return self._keeper.transport

    def reconnect_now(self) -> None:
        """Ends the wait for the next try or the rest after a failure that needs a person; passes a silent link by."""
        self._person.set()
        self._keeper.hurry()

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
        self._prompter.answer(prompt, answer)

    async def run(self) -> None:
        """Connects and stays connected until it is cancelled."""
        watching = [asyncio.create_task(self._watch(topic)) for topic in TOPICS]
        try:
            while True:
                try:
                    await self._keeper.run()
                except LinkError as error:
                    await self._ask(error)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            self._told(LinkStatus(LinkState.CLOSED))
            self._publisher.flush()

    async def _watch(self, topic: str) -> None:
        """Reduces the events of a topic to the state."""
        while True:
            try:
                async for event in self._session.subscribe(topic):
                    self._publisher.update(with_event(self.state, event, time.monotonic()))
            except (RequestError, ProtocolError) as error:
                problem = Event(0, topic, 0.0, 0.0, error=Fault(FAILED, str(error)))
                self._publisher.update(with_event(self.state, problem, time.monotonic()))
            await asyncio.sleep(RESUBSCRIBE_SECONDS)

    async def _ask(self, error: LinkError) -> None:
        """Shows an error that only a person can repair, and waits for the person."""
        self._person.clear()
        if isinstance(error, UnknownHostKey):
            state, question = LinkState.UNKNOWN_HOST_KEY, error.question
            self._told(LinkStatus(state, error.message, error.remedy, question=question))
        else:
            self._told(LinkStatus(LinkState.FAILED, error.message, error.remedy))
        await self._person.wait()

    def _told(self, status: LinkStatus) -> None:
        state = self.state
        if status.state is LinkState.LIVE:
            state = with_hello(state, self._keeper.live.hello)
        self._publisher.update(with_link(state, status))
