"""Hands on the newest state, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

PUBLISH_SECONDS = 0.25
"""The shortest time between two publications: the screen paints at most four times a second."""

T = TypeVar("T")


class Publisher(Generic[T]):
    """Holds a state that changes often and gives the newest to ``publish``: at once after a pause, else in turn."""

    def __init__(self, state: T, publish: Callable[[T], None]) -> None:
        self.state = state
        self._publish = publish
        self._published = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def update(self, state: T) -> None:
        """Takes a new state. Must be called on the event loop."""
        self.state = state
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._published + PUBLISH_SECONDS), self.flush)

    def flush(self) -> None:
        """Publishes a state that still waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._published = asyncio.get_running_loop().time()
            self._publish(self.state)
