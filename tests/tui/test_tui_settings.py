"""The table [screen]: own keys, theme, ASCII, and what rings when a load is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tui_fakes import NOW, PROFILE, WALL, Clock, FakeLink, done_check, failed_job, job, state

from eagle_console.config import ConfigError
from eagle_console.screen_settings import ScreenSettings
from eagle_console.state import HostState, Timed
from eagle_console.tui.actions import ACTIONS
from eagle_console.tui.app import ConsoleApp
from eagle_console.tui.keymap import parse
from eagle_console.tui.messages import StateChanged
from eagle_console.tui.screens.dialogs import StopDialog
from eagle_console.tui.screens.help import HelpScreen, help_text
from eagle_console.tui.widgets.key_footer import KeyFooter
from remote.protocol import jobs
from remote.protocol.jobs import JobList


def console(settings: ScreenSettings, shown: HostState) -> ConsoleApp:
    app = ConsoleApp(PROFILE, FakeLink, Clock(NOW + 0.4), Clock(WALL), settings=settings)
    app.state = shown
    return app


async def test_own_keys_work_instead_of_the_tables() -> None:
    app = console(ScreenSettings(keys={"stop": "ctrl+x, K"}), state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert "ctrl+x stop" in app.screen.query_one(KeyFooter).plain
        await pilot.press("x")
        await pilot.pause()
        assert not isinstance(app.screen, StopDialog)
        for key in ("ctrl+x", "K"):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, StopDialog), key
            await pilot.press("escape")
            await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
    assert "ctrl+x K" in help_text("dashboard", parse({"stop": "ctrl+x, K"})).plain


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"stpo": "X"}, ["'stpo'", "did you mean 'stop'"]),
        ({"stop": ""}, ["stop has no key"]),
        ({"stop": "ctrl+m"}, ["'ctrl+m'", "no key"]),
        ({"stop": "hello world"}, ["'hello world'", "no key"]),
        ({"stop": "s"}, ["s is the key of", "start", "stop", "dashboard"]),
        ({"help": "0"}, ["0 is the key of dashboard and of help"]),
    ],
)
def test_keys_that_cannot_be(keys: Mapping[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(keys)
    assert all(word in str(error.value) for word in words), error.value


def test_two_actions_can_change_places() -> None:
    keymap = parse({"stop": "s", "start": "x"})
    assert {action.id: keymap.key(action) for action in ACTIONS if action.id in ("stop", "start")} == {
        "stop": "s",
        "start": "x",
    }


@pytest.mark.parametrize("written, shown", [("slash", "/"), ("/", "/"), (",", ","), ("full_stop", "."), ("f5", "f5")])
def test_signs_are_keys_too(written: str, shown: str) -> None:
    purge = next(action for action in ACTIONS if action.id == "purge")
    assert parse({"purge": written}).key(purge) == shown


async def test_theme_and_ascii() -> None:
    app = console(ScreenSettings(theme="nord", ascii=True), state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert app.theme == "nord" and app.has_class("-ascii") and app.view().ascii
    with pytest.raises(ConfigError, match="no theme 'nrod'"):
        console(ScreenSettings(theme="nrod"), state())


@pytest.mark.parametrize("notify, bells, written", [("bell", 1, 0), ("osc9", 0, 1), ("off", 0, 0)])
async def test_a_load_that_is_ready_rings_once(
    notify: str, bells: int, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = console(ScreenSettings(notify=notify), state(job()))
    rung: list[str] = []
    sent: list[str] = []
    async with app.run_test(size=(120, 34)) as pilot:
        monkeypatch.setattr(app, "bell", lambda: rung.append("bell"))
        write = app._driver.write  # type: ignore[union-attr]
        monkeypatch.setattr(
            app._driver, "write", lambda data: (sent.append(data) if "\x1b]9;" in data else None, write(data))
        )
        ready = replace(job(), state=jobs.READY)
        for shown in (job(), ready, ready):
            app.post_message(StateChanged(PROFILE.name, state(shown, done_check())))
            await pilot.pause()
        assert [note.message for note in app._notifications] == ["serve on gpu-box is ready after 8:56."]
        assert not any(note.severity == "error" for note in app._notifications)
        assert (len(rung), len(sent)) == (bells, written)


async def test_a_failure_on_a_host_behind_is_told_too() -> None:
    app = console(ScreenSettings(), state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        for shown in (job(), failed_job()):
            behind = replace(state(), jobs=Timed(JobList((shown,)), NOW))
            app._forwards["other"] = app._forwards[PROFILE.name]
            app.post_message(StateChanged("other", behind))
            await pilot.pause()
        [note] = app._notifications
        assert note.severity == "error" and note.message.startswith("serve on other failed")
