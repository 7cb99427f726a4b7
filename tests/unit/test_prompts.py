"""Asking without a clock running, one question at a time; and the helper through which ssh asks."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from link.prompting import Person

from eagle_console.link.askpass_server import AskpassServer
from eagle_console.link.errors import PromptCancelled
from eagle_console.link.prompts import Nobody, PatientPrompter
from eagle_console.link.questions import PassphrasePrompt, PasswordPrompt, Prompt

PROMPT = PasswordPrompt("box", "me")


class Gate:
    """Answers when the test says so."""

    available = True

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asking = 0
        self.most = 0

    async def ask(self, prompt: Prompt) -> str:
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            await self.open.wait()
        finally:
            self.asking -= 1
        return "answer"

    def tell(self, host: str, words: str) -> None:
        pass


async def test_a_question_stops_every_clock_and_they_go_on_after_it() -> None:
    gate = Gate()
    outer = PatientPrompter(gate)
    inner = PatientPrompter(outer)
    asyncio.get_running_loop().call_later(0.3, gate.open.set)
    async with outer.timeout(0.2), inner.timeout(0.1):
        assert await inner.ask(PROMPT) == "answer"
    with pytest.raises(TimeoutError):
        async with outer.timeout(0.05):
            await inner.ask(PROMPT)
            await asyncio.sleep(5)


async def test_a_question_that_is_given_up_lets_the_clocks_go_on() -> None:
    patient = PatientPrompter(Gate())
    with pytest.raises(TimeoutError):
        async with patient.timeout(0.05):
            asking = asyncio.create_task(patient.ask(PROMPT))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.sleep(5)


async def test_one_question_at_a_time() -> None:
    gate = Gate()
    patient = PatientPrompter(gate)
    asyncio.get_running_loop().call_later(0.05, gate.open.set)
    assert await asyncio.gather(*(patient.ask(PROMPT) for _ in range(4))) == ["answer"] * 4
    assert gate.most == 1


async def test_a_silenced_prompter_has_nobody_to_ask() -> None:
    patient = PatientPrompter(Gate())
    with patient.silence():
        assert not patient.available
    assert patient.available
    assert not PatientPrompter(Nobody()).available
    with pytest.raises(PromptCancelled) as caught:
        await Nobody().ask(PassphrasePrompt("box", "/home/me/.ssh/id"))
    assert caught.value.remedy == "ssh-add /home/me/.ssh/id" and not caught.value.asked


def test_no_two_questions_are_equal() -> None:
    assert PasswordPrompt("box", "me") != PasswordPrompt("box", "me")


async def ask_as_ssh(directory: Path, question: str, kind: str = "") -> asyncio.subprocess.Process:
    """The helper as ssh starts it: as a child of a process that it may end."""
    return await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", '"$0" "$1"; echo "status $?"', str(directory / "askpass"), question,
        env={"SSH_ASKPASS_PROMPT": kind, "PATH": os.defpath}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_helper_prints_the_answer(tmp_path: Path) -> None:
    person = Person("öpen ses\\ame\"'")
    async with AskpassServer(tmp_path, "box", person) as server:
        assert stat.S_IMODE((tmp_path / "askpass.sock").stat().st_mode) == 0o600
        ssh = await ask_as_ssh(tmp_path, "me@box's password: ")
        out, _ = await asyncio.wait_for(ssh.communicate(), 20)
    assert out.decode() == "öpen ses\\ame\"'\nstatus 0\n"
    assert server.answered is person.asked[0] and server.stopped is None


async def test_a_cancelled_question_ends_the_ssh_that_asked(tmp_path: Path) -> None:
    async with AskpassServer(tmp_path, "box", Person(None)) as server:
        ssh = await ask_as_ssh(tmp_path, "me@box's password: ")
        out, _ = await asyncio.wait_for(ssh.communicate(), 20)
    assert out == b"" and ssh.returncode == -15
    assert server.stopped is not None


async def test_nobody_there_passes_a_key_over_and_ends_the_rest(tmp_path: Path) -> None:
    async with AskpassServer(tmp_path, "box", Nobody()) as server:
        key = await ask_as_ssh(tmp_path, "Enter passphrase for key '/k': ")
        assert (await asyncio.wait_for(key.communicate(), 20))[0] == b"status 1\n"
        assert server.unasked is not None and server.unasked.remedy == "ssh-add /k"
        password = await ask_as_ssh(tmp_path, "me@box's password: ")
        assert (await asyncio.wait_for(password.communicate(), 20))[0] == b""
        assert password.returncode == -15


async def test_a_touch_is_told_and_waited_for(tmp_path: Path) -> None:
    told = asyncio.Event()

    class Watching(Person):
        def tell(self, host: str, words: str) -> None:
            super().tell(host, words)
            told.set()

    person = Watching()
    async with AskpassServer(tmp_path, "box", person):
        ssh = await ask_as_ssh(tmp_path, "Confirm user presence for key ED25519-SK SHA256:x", "none")
        await asyncio.wait_for(told.wait(), 20)
        assert ssh.returncode is None
    assert (await asyncio.wait_for(ssh.communicate(), 20))[0] == b""  # with the console gone nobody waits for a touch
    assert person.told == ["Confirm user presence for key ED25519-SK SHA256:x"] and person.asked == []


async def test_without_its_console_the_helper_ends_ssh(tmp_path: Path) -> None:
    async with AskpassServer(tmp_path, "box", Person()):
        pass
    ssh = await ask_as_ssh(tmp_path, "me@box's password: ")
    assert (await asyncio.wait_for(ssh.communicate(), 20))[0] == b"" and ssh.returncode == -15
