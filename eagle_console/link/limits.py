"""Limits on connecting: what a server takes from many consoles at once without dropping any.

OpenSSH counts connections that have not logged in yet and drops new ones at random from the tenth on (``MaxStartups
10:30:100``). So few connects to one server run at a time, which counts for jump hosts too, and one that is dropped
before the login is tried again a little later.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

PARALLEL_CONNECTS = 4
"""Connections to one server that this process makes at the same time."""

TRIES = 5
"""In all, for a connection that is dropped before the login."""

PAUSE_SECONDS = 0.3
"""The mean pause before the second try; each further one is twice as long."""

T = TypeVar("T")

Server = tuple[str, int | None]

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[Server, asyncio.Semaphore]] = WeakKeyDictionary()


async def limited(server: Server, log_in: Callable[[], Awaitable[T]], dropped: Callable[[Exception], bool]) -> T:
    """What ``log_in`` gives, at a time when the server may be connected to.

    :param log_in: one connection, up to the end of the login.
    :param dropped: tells the errors of a server that took the connection and let it fall before the login.
    :raises Exception: what ``log_in`` raises otherwise, or in its last try.
    """
    servers = _slots.setdefault(asyncio.get_running_loop(), defaultdict(_new_slots))
    pause = PAUSE_SECONDS
    for _ in range(TRIES - 1):
        async with servers[server]:
            try:
                return await log_in()
            except Exception as error:
                if not dropped(error):
                    raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause *= 2
    async with servers[server]:
        return await log_in()


def _new_slots() -> asyncio.Semaphore:
    return asyncio.Semaphore(PARALLEL_CONNECTS)
