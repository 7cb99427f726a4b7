"""Several hosts in one screen: side by side, switched without a trace of the one before, none delayed by another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from training_fakes import adopted_training, train_job
from tui_fakes import NOW, PROFILE, WALL, Clock, FakeLink, done_check, gpus, job, ready_job, state, until

from eagle_console.commands import screen as screen_command
from eagle_console.commands.invocation import UsageError
from eagle_console.config import Config, HostProfile
from eagle_console.state import HostKeyQuestion, HostState, LinkState, LinkStatus, Timed
from eagle_console.tui import fleet
from eagle_console.tui.app import ConsoleApp
from eagle_console.tui.fleet import Fleet, Host
from eagle_console.tui.screens.dashboard import DashboardScreen
from eagle_console.tui.screens.dialogs import HostKeyDialog, QuitDialog
from eagle_console.tui.screens.hosts import HostsScreen
from eagle_console.tui.widgets.host_tile import HostTile
from eagle_console.tui.widgets.load_panel import LoadPanel
from eagle_console.tui.widgets.status_bar import StatusBar

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}
NAMES = ("gpu-box", "gpu-two", "slow", "far")


class Links:
    """The links of a fleet by host; each publishes what the test says."""

    def __init__(self) -> None:
        self.of: dict[str, FakeLink] = {}
        self.running: list[str] = []

    def host(self, name: str) -> Host:
        def connect(publish: Callable[[HostState], None]) -> FakeLink:
            link = FakeLink(publish)
            run = link.run

            async def noted() -> None:
                self.running.append(name)
                await run()

            link.run = noted  # type: ignore[method-assign]
            self.of[name] = link
            return link

        return Host(replace(PROFILE, name=name, address=f"root@{name}"), connect)


def console(links: Links, *names: str, first: str = "dashboard") -> ConsoleApp:
    front, *others = [links.host(name) for name in names]
    return ConsoleApp(
        front.profile, front.connect, Clock(NOW + 0.4), Clock(WALL), others=others, first=first
    )  # fmt: skip


def known(name: str, *jobs: Any, **changes: Any) -> HostState:
    return replace(state(*jobs, **changes), name=name)


def tile(app: ConsoleApp, name: str) -> HostTile:
    return next(tile for tile in app.screen.query(HostTile) if tile.host == name)


async def shown(app: ConsoleApp, links: Links, pilot: Pilot[Any]) -> None:
    """The hosts screen with four hosts of all kinds."""
    links.of["gpu-box"].publish(known("gpu-box", job(), train_job()))
    await pilot.press("8")
    await until(pilot, lambda: len(links.running) == len(app.fleet.names))
    links.of["gpu-two"].publish(known("gpu-two", ready_job(), gpus=Timed(gpus(lost=True), NOW)))
    waiting = LinkStatus(LinkState.WAITING, "far: no answer for 15 s", "", 2, NOW + 9)
    links.of["far"].publish(known("far", done_check(), received=NOW - 40, link=waiting))
    links.of["slow"].publish(HostState("slow", LinkStatus(LinkState.CONNECTING, attempt=1)))
    await pilot.pause()
    app.paint()
    await pilot.pause()
    app.paint()
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_picture(snap_compare: Any, size: tuple[int, int]) -> None:
    links = Links()
    app = console(links, *NAMES)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(app, links, pilot))


def test_picture_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    links = Links()
    app = console(links, *NAMES)
    assert snap_compare(app, terminal_size=(120, 34), run_before=lambda pilot: shown(app, links, pilot))


async def test_each_tile_shows_link_memory_jobs_and_disk_of_its_host() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await shown(app, links, pilot)
        text = tile(app, "gpu-box").plain
        for words in ("LIVE", "root@gpu-box", "8x", "/764.8 GiB", "disk", "311 GB free", "serve RUNNING", "61% weights",
                      "train RUNNING 39% 15:00-18:10 left"):  # fmt: skip
            assert words in text, words
        assert "* gpu-box" in str(tile(app, "gpu-box").border_title)
        assert "not well" in tile(app, "gpu-two").plain and "– 95%" in tile(app, "gpu-two").plain
        far = tile(app, "far")
        assert "DOWN, next try in 8s" in far.plain and "no answer for 15 s" in far.plain
        assert "DOWN" in str(far.border_title)
        assert "CONNECTING" in tile(app, "slow").plain and "LIVE" in tile(app, "gpu-two").plain


async def test_what_is_not_ours_is_marked_in_the_tile() -> None:
    links = Links()
    app = console(links, "gpu-box")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box", done_check(), adopted=Timed(adopted_training(), NOW)))
        await pilot.press("8")
        await until(pilot, lambda: "not ours" in tile(app, "gpu-box").plain)


async def test_only_the_first_host_is_connected_to_until_the_others_are_wanted() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: links.running == ["gpu-box"])
        await pilot.press("1", "0")
        await pilot.pause(0.05)
        assert links.running == ["gpu-box"]
        await pilot.press("8")
        await until(pilot, lambda: sorted(links.running) == sorted(NAMES))


async def test_a_brace_connects_to_that_one_host() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: links.running == ["gpu-box"])
        for _ in range(2):
            await pilot.press("left_curly_bracket")
            await until(pilot, lambda: app.profile.name == "far" and app.current_mode == "dashboard")
            await pilot.press("right_curly_bracket")
            await until(pilot, lambda: app.profile.name == "gpu-box" and app.current_mode == "dashboard")
        assert links.running == ["gpu-box", "far"]


async def test_enter_brings_a_host_in_front_and_nothing_of_the_one_before_stays() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await shown(app, links, pilot)
        await pilot.press("right")
        assert app.screen.selected == "gpu-two"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, DashboardScreen))
        assert app.profile.name == "gpu-two" and app.client is not None
        assert "gpu-two" in app.screen.query_one(StatusBar).plain
        assert "loaded in" in app.screen.query_one(LoadPanel).plain
        links.of["gpu-box"].publish(known("gpu-box"))  # the one behind goes on, and changes nothing here
        await pilot.pause()
        assert app.state.name == "gpu-two"
        await pilot.press("8")
        await until(pilot, lambda: "* gpu-two" in str(tile(app, "gpu-two").border_title))
        assert "no job runs" in tile(app, "gpu-box").plain


async def test_the_screens_of_the_host_before_are_gone() -> None:
    links = Links()
    app = console(links, "gpu-box", "gpu-two")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box", job()))
        await pilot.press("4")
        await until(pilot, lambda: app.screen.answer is not None)  # type: ignore[attr-defined]
        old = app.screen
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: app.profile.name == "gpu-two" and app.current_mode == "dashboard")
        links.of["gpu-two"].connected = False
        await pilot.press("4")
        await until(pilot, lambda: app.current_mode == "checkpoints")
        assert app.screen is not old and app.screen.answer is None  # type: ignore[attr-defined]
        assert not old.is_attached
        assert links.of["gpu-two"].session.asked == []
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: app.profile.name == "gpu-box")


async def test_a_form_that_was_asked_for_does_not_open_over_another_host() -> None:
    links = Links()
    app = console(links, "gpu-box", "gpu-two")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box"))
        session = links.of["gpu-box"].session
        session.held["stages"] = asyncio.Event()
        await pilot.press("s")
        await until(pilot, lambda: bool(session.asked_for("stages")))
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: app.profile.name == "gpu-two")
        session.held["stages"].set()
        await pilot.pause(0.1)
        assert isinstance(app.screen, DashboardScreen)


async def test_keys_act_on_the_host_in_front() -> None:
    links = Links()
    app = console(links, "gpu-box", "gpu-two")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box", job()))
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: app.profile.name == "gpu-two")
        links.of["gpu-two"].publish(known("gpu-two", job(id="serve-two")))
        await until(pilot, lambda: bool(app.state.live_jobs()))
        await pilot.press("x")
        await pilot.pause()
        await pilot.press("y")
        await until(pilot, lambda: bool(links.of["gpu-two"].session.asked_for("stop")))
        assert links.of["gpu-two"].session.asked_for("stop")[0]["job"] == "serve-two"
        assert not links.of["gpu-box"].session.asked_for("stop")
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, QuitDialog))


async def test_quitting_says_what_keeps_running_on_every_host() -> None:
    links = Links()
    app = console(links, "gpu-box", "gpu-two", "slow")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box"))
        await pilot.press("8")
        await until(pilot, lambda: "gpu-two" in links.of)
        links.of["gpu-two"].publish(known("gpu-two", job(), train_job()))
        await until(pilot, lambda: app.running() != [])
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, QuitDialog) and bool(app.screen.query(".dialog-text")))
        text = str(app.screen.query_one(".dialog-text").render())
        assert "2 jobs keep running on gpu-two" in text and "gpu-box" not in text


async def test_a_question_of_a_host_behind_waits_until_it_is_in_front() -> None:
    links = Links()
    app = console(links, "gpu-box", "gpu-two")
    question = HostKeyQuestion("gpu-two", 22, "ssh-ed25519", "SHA256:abc", "gpu-two ssh-ed25519 AAAA")
    async with app.run_test(size=(120, 34)) as pilot:
        links.of["gpu-box"].publish(known("gpu-box"))
        await pilot.press("8")
        await until(pilot, lambda: "gpu-two" in links.of)
        links.of["gpu-two"].publish(
            HostState("gpu-two", LinkStatus(LinkState.UNKNOWN_HOST_KEY, "unknown key", question=question))
        )
        await until(pilot, lambda: "enter answers" in tile(app, "gpu-two").plain)
        assert isinstance(app.screen, HostsScreen)
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(app.screen, HostKeyDialog))
        await pilot.press("tab", "enter")
        await until(pilot, lambda: links.of["gpu-two"].trusted == [question])
        assert not links.of["gpu-box"].trusted


async def test_shift_r_reconnects_the_chosen_host() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await shown(app, links, pilot)
        await pilot.press("end")
        await pilot.press("down")
        await pilot.press("right", "right", "right")
        assert app.screen.selected == "far"  # type: ignore[attr-defined]
        await pilot.press("R")
        assert links.of["far"].reconnects == 1 and links.of["gpu-box"].reconnects == 0


async def test_arrows_move_in_the_grid_and_stay_inside() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(app, links, pilot)
        seen = []
        for key in ("down", "down", "right", "up", "left", "left", "j", "l", "k", "h"):
            await pilot.press(key)
            seen.append(app.screen.selected)  # type: ignore[attr-defined]
        assert seen == ["slow", "slow", "far", "gpu-two", "gpu-box", "gpu-box", "slow", "far", "gpu-two", "gpu-box"]


async def test_tiles_follow_the_size_of_the_terminal_and_the_chosen_one_stays_in_sight() -> None:
    links = Links()
    app = console(links, *(f"host-{number}" for number in range(16)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("8")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        for _ in range(15):
            await pilot.press("right")
        last = tile(app, "host-15")
        await until(
            pilot, lambda: last.has_focus and app.screen.query_one("#tiles").region.contains_region(last.region)
        )
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: len({tile(app, f"host-{number}").region.y for number in range(5)}) == 1)
        assert len({tile(app, f"host-{number}").region.x for number in range(16)}) == 5


async def test_two_clicks_open_a_tile() -> None:
    links = Links()
    app = console(links, *NAMES)
    async with app.run_test(size=(120, 34)) as pilot:
        await shown(app, links, pilot)
        await pilot.click("#tile-1", times=2)
        await until(pilot, lambda: app.profile.name == "gpu-two")


async def test_one_host_says_how_to_add_another_and_the_screen_can_be_first() -> None:
    links = Links()
    app = console(links, "gpu-box", first="hosts")
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        await pilot.press("right_curly_bracket")
        assert any("hosts add" in notice.message for notice in app._notifications)
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "dashboard")


async def test_few_connect_at_once_and_a_dead_host_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PATIENCE_SECONDS", 0.05)
    links = Links()
    published: list[str] = []
    names = [f"host-{number}" for number in range(16)]
    found = Fleet([links.host(name) for name in names], lambda name, state: published.append(name))
    tasks = [asyncio.create_task(found.run_front())]
    tasks += [asyncio.create_task(found.run(name)) for name in found.begin(names) if name != names[0]]
    await asyncio.sleep(0.01)
    assert len(links.running) == 1 + fleet.PARALLEL_CONNECTS
    links.of["host-1"].publish(HostState("host-1", LinkStatus(LinkState.LIVE)))
    await asyncio.sleep(0.01)
    assert len(links.running) == 2 + fleet.PARALLEL_CONNECTS  # one is up, and the next began at once
    await asyncio.sleep(0.4)
    assert sorted(links.running) == sorted(names)  # nobody else ever answered
    assert found.state("host-1").link.state is LinkState.LIVE and published == ["host-1"]
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_defect_in_a_link_is_not_swallowed() -> None:
    class Broken(FakeLink):
        async def run(self) -> None:
            raise KeyError("topic")

    found = Fleet([Host(PROFILE, FakeLink), Host(replace(PROFILE, name="b"), Broken)], lambda name, state: None)
    with pytest.raises(KeyError):
        await found.run("b")


CONFIG = Config({name: HostProfile(name, f"root@{name}") for name in ("one", "two")})


@pytest.mark.parametrize(
    ("last", "config", "host", "chosen"),
    [
        ("", CONFIG, "one", False),
        ("two", CONFIG, "two", True),
        ("gone", CONFIG, "one", False),
        ("", Config({"one": CONFIG.hosts["one"]}), "one", True),
        ("demo", CONFIG, "demo", True),
    ],
)
def test_which_host_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, config: Config, host: str, chosen: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if last:
        screen_command.remember_host(last)
    assert screen_command.default_host(config) == (host, chosen)


def test_without_a_profile_the_command_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="eagle-console demo"):
        screen_command.default_host(Config())


def test_the_others_of_a_host_are_all_profiles_and_the_demo_has_none() -> None:
    broken = Config({**CONFIG.hosts, "bad": HostProfile("bad", "a:b:c:d@@")})
    assert [target.name for target in screen_command.others(broken, "one")] == ["two"]
    assert [target.name for target in screen_command.others(broken, "root@else")] == ["one", "two"]
    assert screen_command.others(broken, "demo") == []
