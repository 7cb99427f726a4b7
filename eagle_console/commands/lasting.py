"""Work that goes on over a lost link: it is begun again on a new connection until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation
from eagle_console.link.backoff import Backoff
from eagle_console.link.errors import ConnectError, ConnectionLost, LinkTimeout

T = TypeVar("T")


async def lasting(call: Invocation, work: Callable[[HostClient], Awaitable[T]]) -> T:
    """What ``work`` returns. A connection that cannot be made at all is an error; one that was lost is made again.

    :param work: gets a client; it may be called several times and goes on where it was.
    :raises LinkError: for the first connection, and later for what needs a person (a key, a login).
    """
    backoff = Backoff()
    connected = False
    while True:
        begin = asyncio.get_running_loop().time()
        try:
            async with call.host() as client:
                connected, begin = True, asyncio.get_running_loop().time()
                return await work(client)
        except (ConnectionLost, ConnectError, LinkTimeout) as error:
            if not connected:
                raise
            backoff.lived(asyncio.get_running_loop().time() - begin)
            delay = backoff.next_delay()
            call.out.say(f"no connection ({error}); trying again in {delay:.0f} s")
        await asyncio.sleep(delay)
