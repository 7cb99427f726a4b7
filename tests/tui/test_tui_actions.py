"""The action table: what it promises, and that every key of it does something."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from tui_fakes import NOW, TestConsole, chunk, disk, done_check, failed_job, job, state

from eagle_console.link.errors import PortClosed
from eagle_console.state import LinkState, LinkStatus, Timed
from eagle_console.tui.actions import ACTIONS, EVERYWHERE, SCREENS, Risk, actions_at, bindings
from eagle_console.tui.app import ConsoleApp
from eagle_console.tui.keymap import DEFAULT
from eagle_console.tui.screens.compare import CompareDialog
from eagle_console.tui.screens.dialogs import QuitDialog, StopDialog
from eagle_console.tui.screens.free_dialog import FreeDialog
from eagle_console.tui.screens.help import HelpScreen, help_text
from eagle_console.tui.screens.prune_dialog import PruneDialog
from eagle_console.tui.screens.purge_dialog import PurgeDialog
from eagle_console.tui.screens.stage_form import StageForm
from eagle_console.tui.widgets.filter_input import FilterInput
from eagle_console.tui.widgets.log_view import LogView
from eagle_console.tui.widgets.table import Table
from remote.protocol.freeing import GpuHolders

FORBIDDEN = {"ctrl+h", "ctrl+i", "ctrl+j", "ctrl+m", "ctrl+left_square_bracket", "ctrl+r", "tab"}


def test_ids_are_unique_and_keys_are_unique_on_every_screen() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    for screen in SCREENS:
        keys = [key for action in actions_at(screen) for key in action.keys]
        assert len(keys) == len(set(keys)), screen


def test_no_key_that_terminals_mistake_for_another() -> None:
    assert not {key for action in ACTIONS for key in action.keys} & FORBIDDEN


def test_costly_actions_ask_and_the_screens_exist() -> None:
    assert {action.id for action in ACTIONS if action.risk is Risk.COSTLY} == {"stop", "free"}
    assert {action.id for action in ACTIONS if action.risk is Risk.IRREVERSIBLE} == {"purge"}
    assert {key for action in ACTIONS if action.id in ("prune", "purge") for key in action.keys} == {"D", "X"}
    assert set(SCREENS) == set(ConsoleApp.MODES)
    for action in ACTIONS:
        target = re.fullmatch(r"app\.go\('(\w+)'\)", action.action)
        assert target is None or target[1] in SCREENS
        assert set(action.where) <= {EVERYWHERE, *SCREENS}


@pytest.mark.parametrize("screen", SCREENS)
def test_the_help_of_a_screen_names_every_key_of_it(screen: str) -> None:
    text = help_text(screen).plain
    for action in actions_at(screen):
        assert action.help in text
        assert DEFAULT.all_keys(action) in text


def test_bindings_come_from_the_table_alone() -> None:
    for place in (EVERYWHERE, *SCREENS):
        wanted = {action.id for action in ACTIONS if place in action.where}
        assert {binding.id.split(".")[1] for binding in bindings(place)} == wanted  # type: ignore[union-attr]


Effect = Callable[[TestConsole, "Pilot[None]"], Awaitable[None]]
EFFECTS: dict[str, Effect] = {}


def effect(action_id: str) -> Callable[[Effect], Effect]:
    def register(function: Effect) -> Effect:
        EFFECTS[action_id] = function
        return function

    return register


async def _press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def _until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError("the expected state never came")


def _go(screen: str, key: str, start: str = "0") -> None:
    @effect(screen)
    async def check(app: TestConsole, pilot: Pilot[None]) -> None:
        await _press(pilot, start, key)
        assert app.current_mode == screen
        assert screen == app.screen.NAME  # type: ignore[attr-defined]


for _screen, _key, _start in (
    ("dashboard", "0", "1"),
    ("gpus", "1", "0"),
    ("stages", "2", "0"),
    ("logs", "3", "0"),
    ("load", "6", "0"),
    ("training", "7", "0"),
    ("hosts", "8", "0"),
    ("checkpoints", "4", "0"),
    ("journal", "5", "0"),
    ("triage", "T", "4"),
    ("trash", "B", "4"),
):
    _go(_screen, _key, _start)


@effect("mark-job")
async def _mark_job(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "2")
    table = app.screen.query_one("#job-table", Table)
    await _press(pilot, "space")
    assert "* " in table.plain
    await _press(pilot, "space")
    assert "* " not in table.plain


@effect("compare")
async def _compare(app: TestConsole, pilot: Pilot[None]) -> None:
    older = job(id="serve-older", created=1.0)
    app.fake.publish(state(job(), older))
    await _press(pilot, "2", "equals_sign")
    assert isinstance(app.screen, CompareDialog)


@effect("next-host")
@effect("previous-host")
async def _other_host(app: TestConsole, pilot: Pilot[None]) -> None:
    """With several hosts: see test_tui_hosts."""
    before = len(app._notifications)
    await _press(pilot, "right_curly_bracket", "left_curly_bracket")
    assert len(app._notifications) > before


@effect("back")
async def _back(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "1", "escape")
    assert app.current_mode == "dashboard"


@effect("open")
async def _open(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "tab", "enter")
    assert app.current_mode == "load"
    await _press(pilot, "2")
    await _until(pilot, lambda: "serve" in app.screen.query_one("#stage-table").plain)  # type: ignore[attr-defined]
    await _press(pilot, "j", "enter")
    await _until(pilot, lambda: isinstance(app.screen, StageForm))
    await _press(pilot, "escape", "tab", "enter")
    assert app.current_mode == "logs"


@effect("start")
async def _start(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "s")
    await _until(pilot, lambda: isinstance(app.screen, StageForm))
    assert not any(op == "launch" for op, _, _ in app.fake.session.asked)


@effect("stop")
async def _stop(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "x")
    assert isinstance(app.screen, StopDialog)
    assert not any(op == "stop" for op, _, _ in app.fake.session.asked)


async def _disk(app: TestConsole, pilot: Pilot[None], *keys: str) -> Table:
    """The table of a screen about the disk, once it has its answer."""
    await _press(pilot, "4", *keys)
    await _until(pilot, lambda: bool(app.screen.query(Table)) and bool(app.screen.query(Table).last().plain))
    return app.screen.query(Table).last()


@effect("mark")
async def _mark(app: TestConsole, pilot: Pilot[None]) -> None:
    table = await _disk(app, pilot, "T")
    await _press(pilot, "space", "space", "up", "space")
    assert [line[:1] for line in table.plain.splitlines()[:3]] == ["*", " ", " "], "a second space takes it back"
    await _disk(app, pilot, "tab")
    await _press(pilot, "down", "down", "space")
    assert app.screen.query_one("#checkpoint-table", Table).plain.splitlines()[2].startswith("*  7")


@effect("prune")
async def _prune(app: TestConsole, pilot: Pilot[None]) -> None:
    for keys in ((), ("T",)):
        await _disk(app, pilot, *keys)
        await _press(pilot, "D")
        await _until(pilot, lambda: isinstance(app.screen, PruneDialog))
        await _press(pilot, "escape")
    assert not app.fake.session.asked_for("prune")


@effect("free")
async def _free(app: TestConsole, pilot: Pilot[None]) -> None:
    app.fake.session.answers["gpu_holders"] = GpuHolders()
    await _press(pilot, "1", "D")
    await _until(pilot, lambda: isinstance(app.screen, FreeDialog))
    await _press(pilot, "y")
    assert isinstance(app.screen, FreeDialog), "there is nothing to end"
    await _press(pilot, "escape")
    assert not app.fake.session.asked_for("free_gpus")


@effect("undo")
async def _undo(app: TestConsole, pilot: Pilot[None]) -> None:
    for number, keys in enumerate(((), ("T",), ("B",)), 1):
        await _disk(app, pilot, *keys)
        await _press(pilot, "u")
        await _until(pilot, lambda number=number: len(app.fake.session.asked_for("undo")) == number)  # type: ignore[misc]
    assert {args["receipt"] for args in app.fake.session.asked_for("undo")} == {"20260528-203000-7c1e"}


@effect("pin")
async def _pin(app: TestConsole, pilot: Pilot[None]) -> None:
    await _disk(app, pilot, "T")
    await _press(pilot, "P")
    await _until(pilot, lambda: bool(app.fake.session.asked_for("pin")))
    (args,) = app.fake.session.asked_for("pin")
    assert args["path"].endswith("/data_1k") and args["pinned"] is True
    assert args["requested_by"] == "someone@console"
    await _disk(app, pilot, "tab")
    await _press(pilot, "P")
    await _until(pilot, lambda: app.fake.session.asked_for("pin")[-1]["path"].endswith("/output_1k/9"))


@effect("purge")
async def _purge(app: TestConsole, pilot: Pilot[None]) -> None:
    await _disk(app, pilot, "B")
    await _press(pilot, "X")
    assert isinstance(app.screen, PurgeDialog)
    await _press(pilot, *"62 gb", "enter")
    assert isinstance(app.screen, PurgeDialog) and not app.fake.session.asked_for("purge"), "not what was asked for"


@effect("scan")
async def _scan(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "r")
    await _until(pilot, lambda: bool(app.fake.session.asked_for("scan")))
    scanning = replace(disk(), scanning=True)
    app.fake.publish(state(job(), disk=Timed(scanning, NOW)))
    await pilot.pause()
    await _press(pilot, "r")
    await _until(pilot, lambda: len(app.fake.session.asked_for("scan")) == 2)
    assert [args["cancel"] for args in app.fake.session.asked_for("scan")] == [False, True]


@effect("look")
async def _look(app: TestConsole, pilot: Pilot[None]) -> None:
    for keys, op in (((), "checkpoints"), (("T",), "triage"), (("B",), "trash"), (("5",), "journal")):
        await _disk(app, pilot, *keys)
        before = len(app.fake.session.asked_for(op))
        await _press(pilot, "r")
        await _until(pilot, lambda op=op, before=before: len(app.fake.session.asked_for(op)) > before)  # type: ignore[misc]


@effect("shell")
async def _shell(app: TestConsole, pilot: Pilot[None]) -> None:
    # A test's driver has no terminal to lend; test_tui_comforts lends one.
    await _press(pilot, "!")
    await _until(pilot, lambda: any("cannot be lent" in note.message for note in app._notifications))


@effect("forward")
async def _forward(app: TestConsole, pilot: Pilot[None]) -> None:
    app.fake.transport.trouble = PortClosed("nothing listens")
    await _press(pilot, "F")
    await _until(pilot, lambda: any("http://127.0.0.1:" in note.message for note in app._notifications))


@effect("copy")
async def _copy(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "c")
    await _until(pilot, lambda: app.clipboard == job().command_line)


@effect("reconnect")
async def _reconnect(app: TestConsole, pilot: Pilot[None]) -> None:
    app.fake.publish(state(link=LinkStatus(LinkState.WAITING, "lost", retry_at=2_000.0)))
    await pilot.pause()
    await _press(pilot, "R")
    assert app.fake.reconnects == 1


@effect("filter")
async def _filter(app: TestConsole, pilot: Pilot[None]) -> None:
    for keys in (("1",), ("2",), ("3",), ("4", "T"), ("5",)):
        await _press(pilot, *keys, "slash")
        assert app.screen.query_one(FilterInput).has_focus
        await _press(pilot, "escape")
        assert not app.screen.query_one(FilterInput).display


async def _open_log(app: TestConsole, pilot: Pilot[None], *lines: str) -> LogView:
    app.fake.session.log.put_nowait(chunk(*lines))
    await _press(pilot, "3")
    log = app.screen.query_one(LogView)
    await _until(pilot, lambda: bool(log.buffer.shown))
    return log


@effect("follow")
async def _follow(app: TestConsole, pilot: Pilot[None]) -> None:
    log = await _open_log(app, pilot, *[f"line {number}" for number in range(200)])
    assert log.following
    assert log.scroll_y == log.max_scroll_y > 0
    await _press(pilot, "f", "home")
    assert not log.following
    assert log.scroll_y == 0
    await _press(pilot, "f")
    assert log.scroll_y == log.max_scroll_y


@effect("error")
async def _error(app: TestConsole, pilot: Pilot[None]) -> None:
    lines = [f"line {number}" for number in range(100)] + ["ERROR it broke"] + [f"more {n}" for n in range(100)]
    log = await _open_log(app, pilot, *lines)
    await _press(pilot, "e")
    assert not log.following
    assert log.scroll_y <= 100 < log.scroll_y + log.size.height


@effect("wrap")
async def _wrap(app: TestConsole, pilot: Pilot[None]) -> None:
    log = await _open_log(app, pilot, "word " * 100)
    assert log.virtual_size.height == 1
    await _press(pilot, "w")
    assert log.virtual_size.height > 3
    assert log.virtual_size.width <= log.size.width


def _goes(action_id: str, *keys: str, to: int) -> None:
    """A key of the log that goes to a line; test_tui_logs has the whole of it."""

    @effect(action_id)
    async def check(app: TestConsole, pilot: Pilot[None]) -> None:
        lines = ["ERROR it broke" if n in (30, 90) else f"line {n}" for n in range(200)]
        log = await _open_log(app, pilot, *lines)
        await _press(pilot, "home", *keys)
        assert log._marked == to


_goes("next-problem", "full_stop", to=30)
_goes("previous-problem", "full_stop", "full_stop", "comma", to=30)
_goes("next-match", "slash", *"broke", "enter", "n", "n", to=90)
_goes("previous-match", "slash", *"broke", "enter", "n", "N", to=90)


@effect("copy-lines")
async def _copy_lines(app: TestConsole, pilot: Pilot[None]) -> None:
    await _open_log(app, pilot, "one", "two")
    await _press(pilot, "y")
    assert app.clipboard == "one\ntwo"


@effect("previous-log")
async def _older(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "3", "left_square_bracket")
    await _until(pilot, lambda: ("log", {"job": done_check().id, "tail": 2_000}) in app.fake.session.subscribed)


@effect("next-log")
async def _newer(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "3", "left_square_bracket", "right_square_bracket")
    await _until(pilot, lambda: app.fake.session.subscribed[-1][1]["job"] == job().id)


@effect("zoom")
async def _zoom(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "z")
    assert app.screen.maximized is app.screen.query_one("#gpus")
    await _press(pilot, "z")
    assert app.screen.maximized is None


@effect("pause")
async def _pause(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "p")
    app.fake.publish(state(failed_job()))
    await pilot.pause()
    app.paint()
    assert "PAUSED" in app.screen.query_one("#status").plain  # type: ignore[attr-defined]
    assert "FAILED" not in app.screen.query_one("#load").plain  # type: ignore[attr-defined]
    await _press(pilot, "p")
    assert "FAILED" in app.screen.query_one("#load").plain  # type: ignore[attr-defined]


@effect("theme")
async def _theme(app: TestConsole, pilot: Pilot[None]) -> None:
    await _press(pilot, "t")
    assert isinstance(app.screen, CommandPalette)


@effect("palette")
async def _palette(app: TestConsole, pilot: Pilot[None]) -> None:
    for key in ("ctrl+p", "colon"):
        await _press(pilot, key)
        assert isinstance(app.screen, CommandPalette)
        await _press(pilot, "escape")
    await _press(pilot, "ctrl+p")
    await _press(pilot, *"gpus")
    await _until(pilot, lambda: bool(app.screen.query_one("CommandList").option_count))  # type: ignore[attr-defined]
    assert any(str(command.title).startswith("GPUs  (1)") for command in app.get_system_commands(app.screen))
    await _press(pilot, "enter")
    await _until(pilot, lambda: app.current_mode == "gpus")


@effect("help")
async def _help(app: TestConsole, pilot: Pilot[None]) -> None:
    for key in ("question_mark", "f1"):
        await _press(pilot, key)
        assert isinstance(app.screen, HelpScreen)
        await _press(pilot, "escape")


@effect("quit")
async def _quit(app: TestConsole, pilot: Pilot[None]) -> None:
    for key in ("q", "ctrl+q"):
        await _press(pilot, key)
        assert isinstance(app.screen, QuitDialog)
        await _press(pilot, "escape")
    await _press(pilot, "q", "q")
    assert app.return_code == 0


def test_every_action_has_its_effect_tested() -> None:
    assert set(EFFECTS) == {action.id for action in ACTIONS}


@pytest.mark.parametrize("action_id", [action.id for action in ACTIONS])
async def test_key(action_id: str) -> None:
    app = TestConsole(state(job(), done_check()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        await EFFECTS[action_id](app, pilot)
