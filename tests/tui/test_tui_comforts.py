"""The keys that lend the terminal, forward a port and copy a command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tui_fakes import TestConsole, done_check, job, ready_job, state, until

from eagle_console.link.errors import ConnectionLost, ForwardingRefused
from eagle_console.tui.app import ConsoleApp


def notes(app: ConsoleApp) -> str:
    return " / ".join(note.message for note in app._notifications)


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the screen: a test's driver has no terminal that it could leave."""
    events: list[str] = []

    @contextmanager
    def suspend(self: ConsoleApp) -> Iterator[None]:
        events.append("left")
        yield
        events.append("back")

    monkeypatch.setattr(ConsoleApp, "suspend", suspend)
    return events


async def test_the_screen_steps_aside_for_a_shell_while_the_link_goes_on(suspended: list[str]) -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: app.fake.transport.shells == [()])
        assert suspended == ["left"] and app._batch_count > 0  # nothing is painted over the shell
        app.fake.publish(state(replace(job(), state="stopping")))
        await until(pilot, lambda: app.state.live_jobs()[0].state == "stopping")
        app.fake.transport.shell_ends.set()
        await until(pilot, lambda: suspended == ["left", "back"])
        assert app._batch_count == 0
        await pilot.press("2")
        assert app.current_mode == "stages"


async def test_a_shell_that_fails_brings_the_screen_back_with_the_reason(suspended: list[str]) -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        app.fake.transport.trouble = ConnectionLost("the connection is lost; the shell ended with it")
        app.fake.transport.shell_ends.set()
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "the shell ended with it" in notes(app))
        assert suspended == ["left", "back"]


async def test_a_terminal_that_cannot_be_lent() -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "cannot be lent" in notes(app))
        assert app.fake.transport.shells == []


async def test_a_forward_opens_a_port_and_the_same_key_closes_it() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    served = replace(ready_job(), health_url=f"http://127.0.0.1:{port}/health")
    app = TestConsole(state(served))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("F")
        await until(pilot, lambda: "http://127.0.0.1:" in notes(app))
        local = int(notes(app).partition("http://127.0.0.1:")[2].split()[0])
        assert local != port
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
        await pilot.press("F")
        await until(pilot, lambda: "no longer" in notes(app))
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", local)
        await pilot.press("F")
        await until(pilot, lambda: notes(app).count("http://127.0.0.1:") == 2)
        local = int(notes(app).rpartition("http://127.0.0.1:")[2].split()[0])
        app.fake.publish(state(replace(served, state="stopped")))
        await until(pilot, lambda: "and its port here with it" in notes(app))
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", local)
    server.close()


async def test_a_forward_that_cannot_be() -> None:
    app = TestConsole(state(ready_job(), done_check()))
    async with app.run_test(size=(120, 34)) as pilot:
        app.fake.transport.trouble = ForwardingRefused("the SSH server passes nothing on", "AllowTcpForwarding")
        await pilot.press("F")
        await until(pilot, lambda: "AllowTcpForwarding" in notes(app))
        await pilot.press("2", "tab", "j", "F")
        await until(pilot, lambda: "has no server to reach" in notes(app))


async def test_the_command_line_goes_to_the_clipboard_clean() -> None:
    hostile = replace(job(), command_line="vllm serve x\n rm -rf /\x1b]52;c;evil\x07")
    app = TestConsole(state(hostile))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("c")
        await until(pilot, lambda: "OSC 52" in notes(app))
        assert app.clipboard == "vllm serve x  rm -rf /"


async def test_an_old_jobs_command_line_is_asked_for() -> None:
    full = done_check()
    app = TestConsole(state(replace(full, command_line="")))
    async with app.run_test(size=(120, 34)) as pilot:
        app.fake.session.answers["job"] = full
        await pilot.press("2", "tab", "c")
        await until(pilot, lambda: "Copied" in notes(app))
        assert app.clipboard == full.command_line
        assert ("job", {"job": full.id}, None) in app.fake.session.asked
