"""How many requests of a transfer are on their way at once: many on a fast link, one on a slow one.

A slow link would make the last of many wait longer than an answer may take, and everybody else behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

START, MOST = 4, 16

FAST_SECONDS, SLOW_SECONDS = 1.0, 3.0
"""An answer within the first makes the window wider, one that takes longer than the second halves it."""


class Window:
    """Entered by each request for as long as it is on its way."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begins: dict[asyncio.Task[object] | None, float] = {}
        self.limit = START

    async def __aenter__(self) -> None:
        while len(self._begins) >= self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()
                raise
        self._begins[asyncio.current_task()] = self._clock()

    async def __aexit__(self, *error: object) -> None:
        seconds = self._clock() - self._begins.pop(asyncio.current_task())
        if error[0] is None:
            self.limit = adjusted(self.limit, seconds)
        self._wake()

    def _wake(self) -> None:
        free = self.limit - len(self._begins)
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


def adjusted(limit: int, seconds: float) -> int:
    """The width after an answer that took so long."""
    if seconds <= FAST_SECONDS:
        return min(MOST, limit + 1)
    return max(1, limit // 2) if seconds > SLOW_SECONDS else limit
