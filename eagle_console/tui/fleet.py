"""The hosts of one screen: a link to each, one of them in front. A slow or dead host never delays another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from eagle_console.config import HostProfile
from eagle_console.state import HostState, LinkState
from eagle_console.tui.link import Connect, HostLink

PARALLEL_CONNECTS = 4
"""Hosts behind the front one that are connected to at once: a laptop that wakes must not open 16 handshakes."""

PATIENCE_SECONDS = 20.0
"""A host that has not answered by then goes on trying beside the others, and the next one begins."""


@dataclass(frozen=True)
class Host:
    """A host that can be shown.

    :param connect: makes its link, at the first use.
    """

    profile: HostProfile
    connect: Connect


class Fleet:
    """What is known of every host.

    :param hosts: in the order in which they are shown; the first one is in front.
    :param publish: gets the name of a host and its new state.
    """

    def __init__(self, hosts: Sequence[Host], publish: Callable[[str, HostState], None]) -> None:
        self._hosts = {host.profile.name: host for host in hosts}
        self._publish = publish
        self._links: dict[str, HostLink] = {}
        self._states = {name: HostState(name) for name in self._hosts}
        self._settled = {name: asyncio.Event() for name in self._hosts}
        self._slots = asyncio.Semaphore(PARALLEL_CONNECTS)
        self._begun: set[str] = set()
        self.front = next(iter(self._hosts))
        self.link(self.front)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._hosts)

    def profile(self, name: str) -> HostProfile:
        return self._hosts[name].profile

    def state(self, name: str) -> HostState:
        """What is known of a host now; one that was never connected to is ``IDLE``."""
        return self._states[name]

    def link(self, name: str) -> HostLink:
        """The host's link, which lives for as long as the screen."""
        if name not in self._links:
            self._links[name] = self._hosts[name].connect(partial(self._published, name))
        return self._links[name]

    def beside(self, step: int) -> str:
        """The host so many places after the one in front, in a circle."""
        return self.names[(self.names.index(self.front) + step) % len(self.names)]

    def begin(self, names: Iterable[str]) -> list[str]:
        """Those of the hosts whose links were not begun yet; each is to be ``run`` now."""
        found = [name for name in names if name not in self._begun]
        self._begun.update(found)
        return found

    async def run_front(self) -> None:
        """The whole life of the link of the host that is in front now."""
        self._begun.add(self.front)
        await self.link(self.front).run()

    async def run(self, name: str) -> None:
        """The whole life of a host's link, begun when few others are connecting."""
        async with self._slots:
            running = asyncio.create_task(self.link(name).run())
            settled = asyncio.create_task(self._settled[name].wait())
            try:
                await asyncio.wait((running, settled), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                running.cancel()
                raise
            finally:
                settled.cancel()
        try:
            await running
        finally:
            running.cancel()

    def _published(self, name: str, state: HostState) -> None:
        self._states[name] = state
        if state.link.state not in (LinkState.IDLE, LinkState.CONNECTING):
            self._settled[name].set()
        self._publish(name, state)
