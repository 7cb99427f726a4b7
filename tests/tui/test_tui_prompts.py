"""The questions of a link on the screen: masked or not, answered once, taken back, safe from a host's words."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input
from tui_fakes import TestConsole

from eagle_console.link.questions import PassphrasePrompt, PasswordPrompt, Prompt, ServerPrompt, SshPrompt
from eagle_console.state import HostState, LinkState, LinkStatus
from eagle_console.tui.screens.prompt_dialog import PromptDialog

HOSTILE = ServerPrompt(
    "gpu-box.example.org",
    "\x1b[2J\x1b]0;owned\x07[bold red]PASSPHRASE OF A KEY[/]\nYour key: \u202egnp.exe",
    True,
    ("[@click=app.quit]", "Passphrase of /home/me/.ssh/id:\r\n\x1b[31mline\u2028two" + "x" * 4000, *["more"] * 50),
)


def asking(prompt: Prompt) -> HostState:
    return HostState("gpu-box", LinkStatus(LinkState.ASKING, prompt.label, prompt=prompt))


async def show(app: TestConsole, pilot: Pilot[Any], state: HostState) -> None:
    app.fake.publish(state)
    for _ in range(3):
        await pilot.pause()


def text_of(app: TestConsole) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def test_an_answer_goes_to_the_link_and_stays_nowhere() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = PassphrasePrompt("gpu-box", "/home/me/.ssh/id_ed25519")
        await show(app, pilot, asking(prompt))
        dialog = app.screen
        assert isinstance(dialog, PromptDialog)
        await pilot.press(*"open", "space", *"q")
        assert dialog.query_one(Input).value == "open q"
        assert "open q" not in text_of(app) and "/home/me/.ssh/id_ed25519" in text_of(app)
        await pilot.press("enter")
        assert app.fake.answered == [(prompt, "open q")]
        assert not isinstance(app.screen, PromptDialog)


@pytest.mark.parametrize("keys", [["escape"], ["tab", "tab", "enter"]])
async def test_cancel_is_no_answer(keys: list[str]) -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = PasswordPrompt("gpu-box", "root")
        await show(app, pilot, asking(prompt))
        await pilot.press(*"abc", *keys)
        assert app.fake.answered == [(prompt, None)]


async def test_a_question_that_is_not_open_any_more_is_taken_back() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = PasswordPrompt("gpu-box", "root")
        await show(app, pilot, asking(prompt))
        await show(app, pilot, HostState("gpu-box", LinkStatus(LinkState.FAILED, "closed", "R asks again")))
        assert not isinstance(app.screen, PromptDialog)
        assert app.fake.answered == [(prompt, None)]  # which the link drops: it is not open
        await pilot.press("R")
        assert app.fake.reconnects == 1


async def test_the_same_question_again_is_a_new_dialog_and_wants_a_new_answer() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        first, second = (ServerPrompt("gpu-box", "Code:", True) for _ in range(2))
        await show(app, pilot, asking(first))
        await pilot.press("1", "enter")
        await show(app, pilot, asking(second))
        assert isinstance(app.screen, PromptDialog) and app.screen.query_one(Input).value == ""
        await pilot.press("2", "enter")
        assert app.fake.answered == [(first, "1"), (second, "2")]


async def test_the_words_of_a_host_are_only_words() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        await show(app, pilot, asking(HOSTILE))
        shown = text_of(app)
        assert "\x1b" not in shown and "\u202e" not in shown
        assert "QUESTION OF THE HOST" in shown and "gpu-box.example.org asks, in its own words:" in shown
        assert "[@click=app.quit]" in shown
        await pilot.press("1", "2")
        assert "12" in text_of(app)  # this host wanted an answer that shows
        await pilot.press("enter")
        assert app.fake.answered == [(HOSTILE, "12")]


def test_what_a_host_writes_is_cut() -> None:
    assert HOSTILE.instructions[:3] == ("[@click=app.quit]", "Passphrase of /home/me/.ssh/id:", "line")
    assert sum(-(-len(line) // 68) for line in HOSTILE.instructions) <= 10
    assert HOSTILE.label == "Your key: gnp.exe"
    options = SshPrompt("h", "(me@h) Choose:\n 1. push\n 2. call\n\nPasscode or option (1-2): ")
    assert options.above == ("(me@h) Choose:", "1. push", "2. call") and options.label == "Passcode or option (1-2):"
    assert ServerPrompt("h", "").label == "(no words)"


def test_picture_of_a_hostile_question(snap_compare: Any) -> None:
    app = TestConsole()

    async def run(pilot: Pilot[Any]) -> None:
        await show(app, pilot, asking(HOSTILE))

    assert snap_compare(app, terminal_size=(80, 24), run_before=run)


def test_picture_of_a_passphrase(snap_compare: Any) -> None:
    app = TestConsole()

    async def run(pilot: Pilot[Any]) -> None:
        await show(app, pilot, asking(PassphrasePrompt("gpu-box", "/home/me/.ssh/id_ed25519", 2)))
        await pilot.press(*"secret")
        app.screen.query_one(Input).cursor_blink = False

    assert snap_compare(app, terminal_size=(80, 24), run_before=run)
