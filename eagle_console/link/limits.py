"""Limits on connecting: what a server takes from many consoles at once without dropping any.

OpenSSH counts connections that have not logged in yet and drops new ones at random from the tenth on (``MaxStartups
10:30:100``). So few connects to one server run at a time, which counts for jump hosts too, and one that is dropped
before the login is tried again a little later.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

PARALLEL_CONNECTS = 4
"""Connections to one server that this process makes at the same time."""

TRIES = 5
"""In all, for a connection that is dropped before the login."""

PAUSE_SECONDS = 0.3
"""The mean pause before the second try; each further one is twice as long."""

Server = tuple[str, int | None]

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[Server, asyncio.Semaphore]] = WeakKeyDictionary()


@asynccontextmanager
async def connect_slot(host: str, port: int | None) -> AsyncIterator[None]:
    """Waits until the server may be connected to. Held until the login is done."""
    servers = _slots.setdefault(asyncio.get_running_loop(), defaultdict(lambda: asyncio.Semaphore(PARALLEL_CONNECTS)))
    async with servers[(host, port)]:
        yield


def pauses() -> Iterator[float]:
    """Seconds to wait before each further try, with jitter; ends with the last one."""
    for number in range(TRIES - 1):
        yield PAUSE_SECONDS * 2**number * random.uniform(0.5, 1.5)
