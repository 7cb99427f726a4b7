"""A second connection beside a silent one, over loopback: which of the two is kept, and what becomes of the other."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from link.network import until
from link.sshd import SshServer, target

from eagle_console.link import backoff, keeper
from eagle_console.link.supervisor import Supervisor
from eagle_console.link.surroundings import Surroundings
from eagle_console.state import HostState, LinkState
from remote.procfs import alive, identity

pytestmark = pytest.mark.system

SECONDS = 20.0


class Screen:
    """A running supervisor, the states of its link, and a clock that can be moved."""

    def __init__(self, server: SshServer, workspace: Path) -> None:
        self.told: list[LinkState] = []
        self.asleep = 0.0
        surroundings = Surroundings(clock=lambda: time.monotonic() + self.asleep, addresses=lambda: ("192.0.2.7",))
        self.supervisor = Supervisor(target(server, workspace), self._take, surroundings=surroundings)

    def _take(self, state: HostState) -> None:
        self.told.append(state.link.state)

    @property
    def agent(self) -> int:
        assert self.supervisor.state.hello is not None
        return self.supervisor.state.hello.pid

    @property
    def detail(self) -> str:
        return self.supervisor.state.link.detail

    async def until(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        await until(condition, seconds, f"it came true; the link is {self.supervisor.state.link}")


@asynccontextmanager
async def screen(server: SshServer, workspace: Path) -> AsyncIterator[Screen]:
    watched = Screen(server, workspace)
    running = asyncio.create_task(watched.supervisor.run())
    try:
        await watched.until(lambda: watched.supervisor.state.host)
        yield watched
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence counts soon, so that nobody has to wait; a healthy agent speaks more often than that."""
    monkeypatch.setattr(keeper, "SECOND_SECONDS", 2.5)
    monkeypatch.setattr(keeper, "TICK_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "RETRY_SECONDS", 0.2)


async def test_the_second_is_kept_when_the_first_stays_silent(sshd: SshServer, tmp_path: Path) -> None:
    async with screen(sshd, tmp_path) as watched:
        first = identity(watched.agent)
        assert first is not None
        sshd.freeze_connections()
        await watched.until(lambda: "second connection" in watched.detail)
        await watched.until(lambda: watched.agent != first.pid)
        assert set(watched.told) <= {LinkState.CONNECTING, LinkState.LIVE}
        assert LinkState.CONNECTING not in watched.told[watched.told.index(LinkState.LIVE) :]
        assert (await watched.supervisor.client.host()).cpus >= 1
        assert alive(first)  # its sshd is frozen: the lease ends it


async def test_the_first_is_kept_when_it_comes_back_before(sshd: SshServer, tmp_path: Path) -> None:
    async with screen(sshd, tmp_path) as watched:
        first, before = watched.agent, sshd.log().count("Accepted publickey")
        os.kill(sshd.process.pid, signal.SIGSTOP)  # takes connections into its backlog and does not serve them
        try:
            sshd.freeze_connections()
            await watched.until(lambda: "second connection" in watched.detail)
            sshd.thaw_connections()
            await watched.until(lambda: watched.detail == "")
        finally:
            os.kill(sshd.process.pid, signal.SIGCONT)
        assert watched.agent == first
        assert (await watched.supervisor.client.host()).cpus >= 1
        assert sshd.log().count("Accepted publickey") == before
        assert watched.told[-1] is LinkState.LIVE


async def test_a_person_who_presses_reconnect_does_not_wait_for_it(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "SECOND_SECONDS", 60.0)
    async with screen(sshd, tmp_path) as watched:
        first = watched.agent
        watched.supervisor.reconnect_now()  # a link that is not silent is left alone
        sshd.freeze_connections()
        await asyncio.sleep(3.2)
        assert watched.agent == first
        watched.supervisor.reconnect_now()
        await watched.until(lambda: watched.agent != first, 5)


async def test_after_sleep_a_link_that_answers_is_kept(sshd: SshServer, tmp_path: Path) -> None:
    async with screen(sshd, tmp_path) as watched:
        first = watched.agent
        watched.asleep += 3600
        await asyncio.sleep(1.5)
        assert (watched.agent, watched.detail) == (first, "")


async def test_after_sleep_a_dead_link_is_replaced_at_once(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "SECOND_SECONDS", 60.0)
    async with screen(sshd, tmp_path) as watched:
        first = watched.agent
        sshd.freeze_connections()
        watched.asleep += 3600
        await watched.until(lambda: "this computer slept" in watched.detail, 5)
        await watched.until(lambda: watched.agent != first, 5)


async def test_after_sleep_the_wait_for_the_next_try_ends(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "DELAYS_SECONDS", (30.0,))
    async with screen(sshd, tmp_path) as watched:
        first = watched.agent
        sshd.drop_connections()
        await watched.until(lambda: watched.supervisor.state.link.state is LinkState.WAITING)
        watched.asleep += 3600
        await watched.until(lambda: watched.agent != first, 8)


async def test_a_subscription_goes_on_over_the_next_connection(sshd: SshServer, tmp_path: Path) -> None:
    async with screen(sshd, tmp_path) as watched:
        heard = watched.supervisor.client.session.subscribe("host")
        await heard.__anext__()
        first = watched.agent
        sshd.drop_connections()
        async with asyncio.timeout(SECONDS):
            while watched.agent == first or watched.supervisor.state.link.state is not LinkState.LIVE:
                await heard.__anext__()
            await heard.__anext__()
