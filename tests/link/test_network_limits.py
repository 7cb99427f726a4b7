"""Many connects at once: a real sshd drops them before the login, and nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from link.sshd import SshServer, introduce

from eagle_console.link import limits
from eagle_console.link.errors import ConnectError
from eagle_console.link.ssh import AsyncsshTransport

pytestmark = pytest.mark.system


async def log_in(server: SshServer) -> None:
    async with AsyncsshTransport(server.address, "box"):
        pass


async def test_thirty_parallel_connects_all_succeed(sshd: SshServer) -> None:
    """With OpenSSH's own limit, 10:30:100, which drops six of thirty that come at once."""
    await asyncio.gather(*(log_in(sshd) for _ in range(30)))
    assert sshd.log().count("Accepted publickey") == 30
    assert "drop connection" not in sshd.log()


async def test_a_dropped_connection_is_tried_again(start_sshd: Callable[..., SshServer], console_home: Path) -> None:
    """A server that allows one login at a time drops three of four consoles in their first try."""
    server = start_sshd(config="MaxStartups 1:100:1")
    introduce(server, console_home)
    await asyncio.gather(*(log_in(server) for _ in range(limits.PARALLEL_CONNECTS)))
    assert server.log().count("Accepted publickey") == limits.PARALLEL_CONNECTS
    assert "drop connection" in server.log()


async def test_one_that_is_dropped_for_ever_is_reported(
    start_sshd: Callable[..., SshServer], console_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAUSE_SECONDS", 0.01)
    server = start_sshd(config="MaxStartups 1:100:1")
    introduce(server, console_home)
    writer = await hold_the_place(server)
    before = server.log().count("drop connection")
    try:
        with pytest.raises(ConnectError):
            await log_in(server)
    finally:
        writer.close()
    assert server.log().count("drop connection") - before == limits.TRIES


async def hold_the_place(server: SshServer) -> asyncio.StreamWriter:
    """A connection that the server serves, and that never logs in."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        if (await reader.readline()).startswith(b"SSH-"):
            return writer
        writer.close()


async def test_the_slots_are_those_of_one_server() -> None:
    at_once: dict[str, int] = {"a": 0, "b": 0}
    most = dict(at_once)

    async def work(name: str) -> None:
        at_once[name] += 1
        most[name] = max(most[name], at_once[name])
        await asyncio.sleep(0.001)
        at_once[name] -= 1

    await asyncio.gather(
        *(limits.limited((name, 22), lambda name=name: work(name), lambda _: False) for name in "ab" for _ in range(9))
    )
    assert most == {"a": limits.PARALLEL_CONNECTS, "b": limits.PARALLEL_CONNECTS}
