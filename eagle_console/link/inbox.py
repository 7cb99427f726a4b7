"""What waits in the console for the reader of one subscription: bounded, whatever the reader does."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

from remote.protocol import frames
from remote.protocol.frames import Event

MAX_WAITING = 256
"""Events of a topic that is never dropped which may wait before the agent is asked to pause."""

MAX_WAITING_BYTES = 2 * 1024 * 1024
"""The same in bytes on the wire. A hostile agent's JSON takes 25 times that in memory."""

_SAMPLES = (frames.TOPIC_GPUS, frames.TOPIC_HOST, frames.TOPIC_DISK, frames.TOPIC_JOBS, frames.TOPIC_ADOPTED)


def resume_args(args: dict[str, Any], last: Event) -> dict[str, Any]:
    """The arguments of a subscription that goes on right behind an event of one that had ``args``."""
    if last.data is None:
        return args
    if last.topic == frames.TOPIC_LOG:
        return {"job": last.data.get("job"), "offset": last.data.get("next_offset")}
    if last.topic == frames.TOPIC_EVENTS:
        return {**args, "after": last.data.get("seq")}
    return args


class SubscriptionInbox:
    """The events of one subscription between the link's reader and the one who asked for them.

    Of samples only the newest waits. Of other topics all wait; when they are ``MAX_WAITING`` or ``MAX_WAITING_BYTES``
    the inbox is ``full``: the subscription must be paused, and goes on later with ``resume_args``, which leave no gap.
    """

    def __init__(self, topic: str, args: dict[str, Any]) -> None:
        self._topic = topic
        self._args = args
        self._waiting: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._end: Exception | None = None
        self._newest: Event | None = None

    def add(self, event: Event, size: int = 0) -> None:
        """Takes an event that had ``size`` bytes on the wire."""
        if self._topic in _SAMPLES and self._waiting:
            older, _ = self._waiting.pop()
            event, self._bytes = replace(event, dropped=event.dropped + older.dropped + 1), 0
        self._waiting.append((event, size))
        self._bytes += size
        self._newest = event
        self._arrived.set()

    def end(self, reason: Exception) -> None:
        """No more events come; the reader gets what waits, then ``reason``."""
        self._end = reason
        self._arrived.set()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def resume_args(self) -> dict[str, Any]:
        """The arguments of a subscription that goes on behind the newest event that came."""
        return resume_args(self._args, self._newest) if self._newest else self._args

    async def take(self) -> Event:
        """The next event.

        :raises Exception: the reason of the end, when there is none.
        """
        while not self._waiting:
            if self._end is not None:
                raise self._end
            self._arrived.clear()
            await self._arrived.wait()
        event, size = self._waiting.popleft()
        self._bytes -= size
        return event
