"""The supervisor against a real OpenSSH server: first connect, loss, return, and the ends that need a person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from link.sshd import SshServer, introduce, ssh_server, target

from eagle_console.link import session
from eagle_console.link.connect import Target
from eagle_console.link.errors import NotConnected
from eagle_console.link.supervisor import Supervisor
from eagle_console.state import Freshness, HostState, LinkState, freshness

pytestmark = pytest.mark.system

SECONDS = 20.0


class Watched:
    """A running supervisor and everything that it published."""

    def __init__(self, to: Target) -> None:
        self.states: list[HostState] = []
        self.supervisor = Supervisor(to, self._take)
        self._changed = asyncio.Event()

    def _take(self, state: HostState) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, condition: Callable[[HostState], object]) -> HostState:
        async with asyncio.timeout(SECONDS):
            while not condition(self.supervisor.state):
                self._changed.clear()
                await self._changed.wait()
        return self.supervisor.state


@asynccontextmanager
async def watched(to: Target) -> AsyncIterator[Watched]:
    watch = Watched(to)
    task = asyncio.create_task(watch.supervisor.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert watch.states[-1].link.state is LinkState.CLOSED


def link_is(state: LinkState) -> Callable[[HostState], bool]:
    return lambda host: host.link.state is state


async def test_every_topic_arrives_and_publishing_is_bounded(sshd: SshServer, tmp_path: Path) -> None:
    async with watched(target(sshd, tmp_path)) as watch:
        state = await watch.until(lambda host: host.gpus and host.host and host.disk and host.jobs)
        assert state.link.state is LinkState.LIVE
        assert state.hello is not None
        assert state.hello.workspace == str(tmp_path)
        assert not state.problems
        before, started = len(watch.states), time.monotonic()
        await asyncio.sleep(2.0)
        assert 2 <= len(watch.states) - before <= 4 * (time.monotonic() - started) + 1
        assert (await watch.supervisor.client.host()).cpus >= 1


async def test_after_a_loss_it_comes_back_and_keeps_what_was_known(sshd: SshServer, tmp_path: Path) -> None:
    async with watched(target(sshd, tmp_path)) as watch:
        before = await watch.until(lambda host: host.gpus and host.jobs)
        sshd.drop_connections()
        lost = await watch.until(link_is(LinkState.WAITING))
        assert lost.jobs == before.jobs
        assert lost.link.retry_at is not None
        assert 0 < lost.link.retry_at - time.monotonic() <= 1.0
        assert freshness(lost, lost.jobs, time.monotonic())[0] is Freshness.DOWN
        with pytest.raises(NotConnected, match=r"lost|ended"):
            _ = watch.supervisor.client
        back = await watch.until(link_is(LinkState.LIVE))
        assert back.hello is not None
        assert before.hello is not None
        assert back.hello.pid != before.hello.pid
        assert back.jobs is not None
        received = back.jobs.received
        await watch.until(lambda host: host.jobs is not None and host.jobs.received > received)


async def test_a_person_can_end_the_wait(tmp_path: Path, console_home: Path) -> None:
    with ssh_server(tmp_path / "host") as server:
        introduce(server, console_home)
        to = target(server)
        async with watched(to) as watch:
            await watch.until(link_is(LinkState.LIVE))
            port = server.port
            server.drop_connections()  # the console waits half a second before it tries again
            server.process.terminate()
            server.process.wait()
            await watch.until(lambda host: host.link.state is LinkState.WAITING and host.link.attempt >= 3)
            with ssh_server(tmp_path / "host", port=port):
                started = time.monotonic()
                watch.supervisor.reconnect_now()
                await watch.until(link_is(LinkState.LIVE))
                assert time.monotonic() - started < 2.5  # the third delay is 2.5 to 5 s


async def test_an_unknown_key_waits_for_a_person(start_sshd: Callable[..., SshServer], console_home: Path) -> None:
    server = start_sshd()
    introduce(server, console_home)
    (console_home / ".ssh" / "known_hosts").unlink()
    async with watched(target(server)) as watch:
        state = await watch.until(link_is(LinkState.UNKNOWN_HOST_KEY))
        question = state.link.question
        assert question is not None
        assert question.fingerprint == server.fingerprint
        watch.supervisor.trust_host_key(question)
        await watch.until(link_is(LinkState.LIVE))


async def test_a_refused_login_is_not_tried_again(sshd: SshServer, console_home: Path) -> None:
    (console_home / ".ssh" / "id_ed25519").unlink()
    async with watched(target(sshd)) as watch:
        state = await watch.until(link_is(LinkState.FAILED))
        assert state.link.retry_at is None
        assert "ssh-add" in state.link.remedy
        tries = sshd.log().count("Connection from")
        await asyncio.sleep(1.5)
        assert sshd.log().count("Connection from") == tries
        introduce(sshd, console_home)
        watch.supervisor.reconnect_now()
        await watch.until(link_is(LinkState.LIVE))


async def test_a_host_that_falls_silent_is_left_and_found_again(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a network that drops everything: nothing is closed, nothing arrives."""
    monkeypatch.setattr(session, "PING_SECONDS", 0.2)
    monkeypatch.setattr(session, "SILENCE_SECONDS", 1.0)
    async with watched(target(sshd, tmp_path)) as watch:
        await watch.until(lambda host: host.host)
        sshd.freeze_connections()
        started = time.monotonic()
        state = await watch.until(link_is(LinkState.WAITING))
        assert "does not answer" in state.link.detail
        assert time.monotonic() - started < 3.0
        await watch.until(link_is(LinkState.LIVE))
