"""Work that follows a host for long, on the command line: it survives lost links, and says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eagle_console.client import HostClient
from eagle_console.format import duration_in_words
from eagle_console.link.connect import Target
from eagle_console.link.errors import LinkError
from eagle_console.link.keeper import HOPELESS, Keeper
from eagle_console.link.moving import PatientSession
from eagle_console.link.prompts import Prompter
from eagle_console.state import LinkState, LinkStatus

T = TypeVar("T")


async def stay_connected(
    target: Target,
    work: Callable[[HostClient], Awaitable[T]],
    say: Callable[[str], None],
    timeout: float,
    prompter: Prompter | None = None,
) -> T:
    """What ``work`` gives. Its client lasts: a lost link delays requests and subscriptions, and nothing is missed.

    :param say: gets a note about each loss and return.
    :param timeout: seconds for each connection, and for each request.
    :param prompter: as for ``connect.reach``.
    :raises LinkError: when the first connection fails, or a later one in a way that trying again does not cure.
    """
    notes = _Notes(target.name, say)
    keeper = Keeper(target, notes, connect_seconds=timeout, request_seconds=timeout, prompter=prompter)

    def is_final(error: LinkError) -> bool:
        return isinstance(error, HOPELESS) or not notes.connected

    keeping = asyncio.create_task(keeper.run(is_final))
    working = asyncio.ensure_future(work(HostClient(PatientSession(keeper))))
    try:
        await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            keeping.result()  # raises: only an error ends it
        return await working
    finally:
        keeping.cancel()
        working.cancel()
        await asyncio.gather(keeping, working, return_exceptions=True)


class _Notes:
    """Says in a line what happens to the link: each kind of trouble once, and its end."""

    def __init__(self, host: str, say: Callable[[str], None]) -> None:
        self.connected = False
        self._host, self._say = host, say
        self._said: LinkState | None = None
        self._since = 0.0

    def __call__(self, status: LinkStatus) -> None:
        fine = status.state is LinkState.LIVE and not status.detail
        if fine and self._said is not None:
            self._say(f"{self._host} answers again after {duration_in_words(time.monotonic() - self._since)}")
            self._said = None
        elif self.connected and status.detail and status.state is not self._said:
            if self._said is None:
                self._since = time.monotonic()
            self._said = status.state
            lost = status.state is not LinkState.LIVE
            self._say(f"connection lost: {status.detail}; jobs go on, connecting again" if lost else status.detail)
        self.connected = self.connected or fine
