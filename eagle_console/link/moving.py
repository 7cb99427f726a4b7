"""Sessions that outlive a connection: to their users one conversation, whatever happens below it.

A subscription goes on behind the last event that its reader took: for a log at the next byte, for a job's events at
the next number. So nothing is missing after a reconnect and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from eagle_console.link.errors import LinkError, LinkTimeout
from eagle_console.link.inbox import resume_args
from eagle_console.link.keeper import Keeper
from eagle_console.link.transport import Transport
from remote.protocol.frames import AgentHello, Event

REPEATABLE = frozenset(
    {"gpus", "host", "disk", "jobs", "job", "stages", "plan", "read_log", "list_files", "read_file", "hash_file"}
)
"""Operations that change nothing. Those that do may be sent again only with their idempotency key."""


class MovingSession:
    """The session of a screen. A request belongs to the connection of its moment, and fails with it: a person sees
    that and decides. Subscriptions move to the next connection by themselves."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @property
    def hello(self) -> AgentHello:
        return self._keeper.live.hello

    @property
    def transport(self) -> Transport:
        """The connection of the moment, for a shell and for ports.

        :raises NotConnected: when there is none.
        """
        return self._keeper.transport

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        """The answer to one operation.

        :raises RequestError: when the agent refuses.
        :raises LinkError: when there is no link, or it is lost before the answer.
        """
        return await self._keeper.live.request(op, args, key)

    async def subscribe(
        self, topic: str, interval: float = 1.0, args: dict[str, Any] | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a topic until the iterator is closed, over all connections.

        :raises RequestError: when the agent ends the subscription.
        """
        args, session = args or {}, None
        while True:
            session = await self._keeper.session(after=session)
            try:
                async with aclosing(session.subscribe(topic, interval, args)) as events:
                    async for event in events:
                        args = resume_args(args, event)
                        yield event
            except LinkError:
                continue  # the keeper knows, and brings the next one


class PatientSession(MovingSession):
    """The session of a command that goes on by itself: its requests, too, wait for the next connection."""

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        session = None
        while True:
            session = await self._keeper.session(after=session)
            try:
                return await session.request(op, args, key)
            except LinkTimeout:
                raise
            except LinkError:
                if op not in REPEATABLE and key is None:
                    raise
