"""Keeps a live session with one host: through silence, losses, sleep and changes of network, until it is hopeless.

A link that falls silent is not given up at once, since it may only be slow: after ``SECOND_SECONDS`` a second
connection is tried beside it, and the first of the two that works is kept. Who uses the link sees one session leave
and another one come (``moving.MovingSession``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from eagle_console.link.backoff import Backoff
from eagle_console.link.connect import Endpoint, Target, open_session, reach
from eagle_console.link.errors import (
    AddressError,
    AuthenticationError,
    HostKeyError,
    LinkError,
    LinkTimeout,
    NoPython,
    NotConnected,
    PromptCancelled,
)
from eagle_console.link.prompts import Nobody, PatientPrompter, Prompter
from eagle_console.link.session import AgentSession
from eagle_console.link.surroundings import TICK_SECONDS, Surroundings
from eagle_console.link.transport import Transport
from eagle_console.state import STALE_SECONDS, LinkState, LinkStatus

SECOND_SECONDS = 10.0
"""Silence after which a second connection is tried."""

PROBE_SECONDS = 1.0
"""For the answer to a ping after this computer slept or changed its network."""

RETRY_SECONDS = 2.0
"""Between two tries of a second connection."""

CONNECT_SECONDS = 60.0
"""For everything up to the agent's hello, the upload of the bundle over a slow line included."""

HOPELESS = (AddressError, AuthenticationError, HostKeyError, NoPython)
"""Trying these again by itself helps nobody, and servers ban addresses that keep failing to log in."""


@dataclass(frozen=True)
class _Connection:
    session: AgentSession
    transport: Transport
    resources: AsyncExitStack


class Keeper:
    """The session with one host, whichever connection carries it.

    :param told: gets each new state of the link; called on the event loop, must not block.
    :param topics: that will be subscribed to at once, see ``session.Opening``.
    :param connect_seconds: for one connection, up to the agent's hello.
    :param request_seconds: for each answer; None leaves it to the session.
    :param prompter: as for ``connect.reach``.
    """

    def __init__(
        self,
        target: Target,
        told: Callable[[LinkStatus], None],
        *,
        topics: Sequence[str] = (),
        connect_seconds: float = CONNECT_SECONDS,
        request_seconds: float | None = None,
        surroundings: Surroundings | None = None,
        prompter: Prompter | None = None,
    ) -> None:
        self._target, self._told, self._topics = target, told, topics
        self._connect_seconds, self._request_seconds = connect_seconds, request_seconds
        self._surroundings = surroundings or Surroundings()
        self._prompter = PatientPrompter(prompter or Nobody())
        self._backoff = Backoff()
        self._connection: _Connection | None = None
        self._since = 0.0
        self._detail = ""
        self._arrived = asyncio.Event()
        self._hurry = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> AgentSession:
        """The session of this moment.

        :raises NotConnected: when there is none.
        """
        return self._now.session

    @property
    def transport(self) -> Transport:
        """The connection of this moment.

        :raises NotConnected: when there is none.
        """
        return self._now.transport

    @property
    def _now(self) -> _Connection:
        if self._connection is None:
            reason = f": {self._detail}" if self._detail else ""
            raise NotConnected(f"{self._target.name} is not connected{reason}")
        return self._connection

    async def session(self, after: AgentSession | None = None) -> AgentSession:
        """Waits for a session, for another one than ``after`` where that has failed."""
        while self._connection is None or self._connection.session is after:
            await self._arrived.wait()
        return self._connection.session

    def hurry(self) -> None:
        """Ends the wait for the next try; gives a link that is silent a second connection at once."""
        self._backoff.attempt = 0
        if self._connection is None or self._connection.session.silent_seconds > STALE_SECONDS:
            self._hurry.set()

    async def run(self, is_final: Callable[[LinkError], bool] = lambda error: isinstance(error, HOPELESS)) -> None:
        """Connects and stays connected until it is cancelled.

        :param is_final: tells the errors after which no further try is made.
        :raises LinkError: such an error.
        """
        endpoint: Endpoint | None = None
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._finish)
            while True:
                self._hurry.clear()
                self._tell(LinkState.CONNECTING)
                try:
                    if endpoint is None:
                        endpoint = await stack.enter_async_context(reach(self._target, self._prompter))
                    await self._keep(endpoint)
                except LinkError as error:
                    if is_final(error):
                        raise
                    await self._pause(error)

    async def _keep(self, endpoint: Endpoint) -> None:
        """One connection, and those that take its place, until the last one is lost.

        :raises LinkError: always, with the reason of the end.
        """
        self._install(await self._first(endpoint))
        try:
            while True:
                await self._until_silent()
                with self._prompter.silence():
                    await self._replace(endpoint)
        finally:
            self._remove()

    async def _first(self, endpoint: Endpoint) -> _Connection:
        """A connection; a try that this computer slept through, or that began in another network, is begun again."""
        self._surroundings.rest()
        while True:
            opening = asyncio.create_task(self._open(endpoint))
            try:
                while not opening.done() and not self._surroundings.changed():
                    await asyncio.wait({opening}, timeout=TICK_SECONDS)
                if opening.done():
                    return opening.result()
            except asyncio.CancelledError:
                self._discard(opening)
                raise
            self._discard(opening)

    async def _open(self, endpoint: Endpoint) -> _Connection:
        async with AsyncExitStack() as stack:
            try:
                async with self._prompter.timeout(self._connect_seconds):
                    connected = await stack.enter_async_context(
                        open_session(endpoint, self._request_seconds, self._topics)
                    )
            except TimeoutError:
                raise LinkTimeout(f"no connection to {self._target.name} in {self._connect_seconds:g} s") from None
            return _Connection(connected.session, connected.transport, stack.pop_all())

    async def _until_silent(self) -> None:
        """Watches the connection until it is silent.

        :raises LinkError: when it is lost.
        """
        session = self.live
        self._surroundings.rest()
        lost = asyncio.create_task(session.lost())
        hurried = asyncio.create_task(self._hurry.wait())
        try:
            while True:
                await asyncio.wait({lost, hurried}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise lost.result()
                changed = self._surroundings.changed()
                if changed and not await session.probe(PROBE_SECONDS):
                    self._detail = f"{self._target.name} does not answer since {changed}"
                    return
                if hurried.done() or session.silent_seconds >= SECOND_SECONDS:
                    self._detail = f"{self._target.name} has been silent for {session.silent_seconds:.0f} s"
                    return
        finally:
            self._hurry.clear()
            lost.cancel()
            hurried.cancel()

    async def _replace(self, endpoint: Endpoint) -> None:
        """Tries a second connection beside the silent one; keeps the first of the two that works.

        :raises LinkError: when the silent one is lost and the second one failed.
        """
        silent = self.live
        self._tell(LinkState.LIVE, f"{self._detail}; trying a second connection")
        opening = asyncio.create_task(self._first(endpoint))
        heard = asyncio.create_task(silent.heard())
        lost = asyncio.create_task(silent.lost())
        try:
            await asyncio.wait({opening, heard, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done() and not opening.done():
                self._detail = lost.result().message
                self._remove()
                self._tell(LinkState.CONNECTING)
                await asyncio.wait({opening})
            if not opening.done():
                self._tell(LinkState.LIVE)
            elif isinstance(error := opening.exception(), LinkError):
                await self._bear(error, heard, lost)
            else:
                silent.abandon()
                self._remove()
                self._install(opening.result())
        finally:
            heard.cancel()
            lost.cancel()
            self._discard(opening)

    async def _bear(self, error: LinkError, heard: asyncio.Task[None], lost: asyncio.Task[LinkError]) -> None:
        """After a second connection failed: waits for the silent one, and until the next second one may be tried.

        :raises LinkError: when the silent one is lost.
        """
        again = None if isinstance(error, HOPELESS) else RETRY_SECONDS
        await asyncio.wait({heard, lost}, timeout=again, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            unasked = isinstance(error, PromptCancelled) and not error.asked
            raise lost.result() if unasked else error  # the next try may ask
        if heard.done():
            self._tell(LinkState.LIVE)

    async def _pause(self, error: LinkError) -> None:
        """Says why there is no link, and waits until it is time for the next try."""
        delay = self._backoff.next_delay()
        self._detail = error.message
        retry_at = time.monotonic() + delay
        attempt = self._backoff.attempt
        self._told(LinkStatus(LinkState.WAITING, error.message, error.remedy, attempt, retry_at))
        self._surroundings.rest()
        while (left := retry_at - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._hurry.wait(), min(left, TICK_SECONDS))
                return
            except TimeoutError:
                if self._surroundings.changed():
                    self._backoff.attempt = 0
                    return

    def _install(self, connection: _Connection) -> None:
        self._connection, self._since, self._detail = connection, time.monotonic(), ""
        self._arrived.set()
        self._arrived.clear()
        self._tell(LinkState.LIVE)

    def _remove(self) -> None:
        """Lets the connection go, in the background: to close one that does not answer takes its time."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._backoff.lived(time.monotonic() - self._since)
            self._in_background(connection.resources.aclose())

    def _discard(self, opening: asyncio.Task[_Connection]) -> None:
        """Ends a try that is not needed any more."""
        opening.cancel()
        self._in_background(self._close_unused(opening))

    async def _close_unused(self, opening: asyncio.Task[_Connection]) -> None:
        await asyncio.wait({opening})
        if not opening.cancelled() and opening.exception() is None and opening.result() is not self._connection:
            await opening.result().resources.aclose()  # once more is harmless

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _finish(self) -> None:
        while self._background:
            await asyncio.wait(self._background)

    def _tell(self, state: LinkState, detail: str = "") -> None:
        self._told(LinkStatus(state, detail, attempt=self._backoff.attempt))
