"""Questions of a link that keeps itself alive: asked once, never again and again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from link.asking_server import Script, asking_server
from link.sshd import SshServer, ssh_keygen, target
from link.test_supervisor import Watched, link_is, watched

from eagle_console.config import HostProfile
from eagle_console.link.connect import Target
from eagle_console.link.questions import Prompt
from eagle_console.state import LinkState

pytestmark = pytest.mark.system

TRANSPORTS = ["asyncssh", "ssh"]


async def open_question(watch: Watched, after: Prompt | None = None) -> Prompt:
    state = await watch.until(lambda host: host.link.prompt is not None and host.link.prompt is not after)
    assert state.link.prompt is not None and state.link.state is LinkState.ASKING
    return state.link.prompt


def lock(server: SshServer, home: Path) -> Path:
    key = home / ".ssh" / "id_ed25519"
    ssh_keygen("-q", "-p", "-P", "", "-N", "open sesame", "-f", str(key))
    (home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {key}\n")
    return key


async def test_a_kept_passphrase_lets_the_link_come_back_by_itself(sshd: SshServer, console_home: Path) -> None:
    lock(sshd, console_home)
    async with watched(target(sshd)) as watch:
        wrong = await open_question(watch)
        watch.supervisor.answer_prompt(wrong, "wrong")
        right = await open_question(watch, wrong)
        watch.supervisor.answer_prompt(wrong, "late")  # dropped: it is not open any more
        watch.supervisor.answer_prompt(right, "open sesame")
        await watch.until(link_is(LinkState.LIVE))
        sshd.drop_connections()
        await watch.until(link_is(LinkState.WAITING))
        await watch.until(link_is(LinkState.LIVE))
        assert len({id(state.link.prompt) for state in watch.states if state.link.prompt}) <= 2


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_cancelled_question_rests_until_a_person_asks_again(
    sshd: SshServer, console_home: Path, transport: str
) -> None:
    lock(sshd, console_home)
    async with watched(target(sshd, transport=transport)) as watch:
        first = await open_question(watch)
        watch.supervisor.answer_prompt(first, None)
        state = await watch.until(link_is(LinkState.FAILED))
        assert state.link.remedy == "R asks again" and state.link.retry_at is None
        tries = sshd.log().count("Connection from")
        await asyncio.sleep(1.5)
        assert sshd.log().count("Connection from") == tries
        assert watch.supervisor.state.link.state is LinkState.FAILED
        watch.supervisor.reconnect_now()
        again = await open_question(watch, first)
        watch.supervisor.answer_prompt(again, "open sesame")
        await watch.until(link_is(LinkState.LIVE))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_host_that_does_not_wait_is_not_asked_again_by_itself(
    tmp_path: Path, console_home: Path, transport: str
) -> None:
    rounds = [(("", "", [("Code: ", False)]), ["1"])]
    async with asking_server(tmp_path / "host", Script(rounds=rounds, patience=0.5)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        async with watched(Target(HostProfile("box", server.address, transport=transport))) as watch:
            question = await open_question(watch)
            if transport == "ssh":  # it sees the end of the connection only when it goes on
                await asyncio.sleep(0.6)
                watch.supervisor.answer_prompt(question, "1")
            state = await watch.until(link_is(LinkState.FAILED))
            assert "before the question was answered" in state.link.detail
            assert state.link.prompt is None


async def test_a_code_is_asked_once_for_each_connection(tmp_path: Path, console_home: Path) -> None:
    rounds = [(("", "", [("Code: ", False)]), ["1"])]
    async with asking_server(tmp_path / "host", Script(rounds=rounds)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        async with watched(Target(HostProfile("box", server.address))) as watch:
            question = await open_question(watch)
            watch.supervisor.answer_prompt(question, "1")
            await watch.until(link_is(LinkState.LIVE))
            server.drop_connections()
            again = await open_question(watch, question)
            watch.supervisor.answer_prompt(again, None)
            await watch.until(link_is(LinkState.FAILED))
        assert server.script.answers == [("1",)]
