"""The embedded host as one that can be connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from eagle_console.config import HostProfile
from eagle_console.demo import DemoHost
from eagle_console.demo.environment import find_pipeline
from eagle_console.demo.home import demo_home
from eagle_console.link.ssh import AsyncsshTransport


def demo_profile() -> HostProfile:
    """The profile that the embedded host has once it runs; nothing is made or started."""
    pipeline = find_pipeline()
    return HostProfile(
        name="demo",
        address="demo",
        workspace=str(demo_home() / "workspace"),
        verifier=str(pipeline.verifier) if pipeline else None,
        python=str(pipeline.python) if pipeline else None,
    )


@asynccontextmanager
async def run_demo() -> AsyncIterator[Callable[[], AsyncsshTransport]]:
    """Runs the embedded host until the context ends. What it gives makes a new connection at each call."""
    async with DemoHost() as host:
        yield lambda: AsyncsshTransport.pinned(host.address, host.port, host.user, host.host_key, host.client_key)
