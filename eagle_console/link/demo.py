"""The embedded host as one that can be connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from eagle_console.demo import DemoHost
from eagle_console.link.ssh import AsyncsshTransport


@asynccontextmanager
async def run_demo() -> AsyncIterator[Callable[[], AsyncsshTransport]]:
    """Runs the embedded host until the context ends. What it gives makes a new connection at each call."""
    async with DemoHost() as host:
        yield lambda: AsyncsshTransport.pinned(host.address, host.port, host.user, host.host_key, host.client_key)
