"""The load screen: phases with their shares, each rank's file, the read rate, and the starts before this one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from tui_fakes import WALL, TestConsole, done_check, failed_job, job, ready_job, state, until

from eagle_console.tui.screens.load import LoadScreen
from eagle_console.tui.widgets.load_panel import FullLoadPanel, rank_lines
from eagle_console.tui.widgets.table import Table
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job
from remote.protocol.progress import Eta, RankShard
from remote.protocol.starts import EarlierStart, EarlierStarts

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}

ETA = Eta(560.0, 490.0, 660.0, "from 3 earlier starts and the read rate", 0.48)
BOTTLENECK = (
    "Disk-bound: 0.41 GB/s, where this path gave 3.2 GB/s before. "
    "Another process may be reading: see iotop; a copy on local NVMe would be faster."
)
RANKS = tuple(RankShard(4_200 + n, f"model-{36 + n:05d}-of-00064.safetensors", 36 + n % 4, 64) for n in range(8))

STARTS = EarlierStarts(
    (
        EarlierStart(
            "/data/models/Kimi-K2.5", "", "/data xfs", 8, "0.22.0", "warm",
            {"start": 44.0, "weights": 169.0, "load end": 12.0, "compile": 40.0, "capture": 32.0, "server": 9.0},
            540e9, False, WALL - 86_400,
        ),
        EarlierStart("/data/models/[/x]", spans={"weights": 3.0}, warm=True, wall=WALL - 172_800),
    )
)  # fmt: skip


def loading() -> Job:
    base = job()
    progress = replace(base.progress, eta=ETA, bottleneck=BOTTLENECK, ranks=RANKS, read_rate=0.41e9)
    return replace(base, progress=progress)


def console(*jobs: Job, starts: Any = STARTS, ascii: bool = False) -> TestConsole:
    app = TestConsole(state(*jobs), ascii=ascii)
    app.fake.session.answers["starts"] = starts
    return app


async def opened(app: TestConsole, pilot: Pilot[Any]) -> None:
    await pilot.press("6")
    await until(pilot, lambda: isinstance(app.screen, LoadScreen) and app.screen.answer is not None)
    app.paint()
    await pilot.pause()
    app.paint()
    await pilot.pause()


def plain(app: TestConsole) -> str:
    return app.screen.query_one(FullLoadPanel).plain


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("name", ["loading", "ready", "failed"])
def test_picture(snap_compare: Any, name: str, size: tuple[int, int]) -> None:
    app = console({"loading": loading(), "ready": ready_job(), "failed": failed_job()}[name], done_check())
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: opened(app, pilot))


def test_picture_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = console(loading())
    assert snap_compare(app, terminal_size=(120, 34), run_before=lambda pilot: opened(app, pilot))


async def test_everything_known_of_a_load() -> None:
    app = console(loading())
    async with app.run_test(size=(140, 50)) as pilot:
        await opened(app, pilot)
        text = plain(app)
        for words in ("ready in 8:10 to 11:00", "from 3 earlier starts", "39/64 shards", "61% of weights",
                      "410 MB/s from storage", "Disk-bound", "pid 4200", "model-00043-of-00064"):  # fmt: skip
            assert words in text, words
        weights = next(line for line in text.splitlines() if "weights" in line and "8:12" in line)
        assert "92%" in weights and "━" in weights  # 492 of 536 seconds
        rows = app.screen.query_one(Table).plain.splitlines()
        assert "Kimi-K2.5" in rows[0] and "5:06" in rows[0] and "2:49" in rows[0] and "3.2 GB/s" in rows[0]
        assert "cold" in rows[0] and "[/x]" not in rows[0]
        assert (
            "x]" in rows[1] and "3s" in rows[1] and "GB/s" not in rows[1]
        )  # what came from the page cache has no rate


async def test_without_earlier_starts_the_load_has_the_whole_screen_and_a_refusal_is_said() -> None:
    app = console(loading(), starts=EarlierStarts())
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        assert not app.screen.query_one(Table).display
        app.fake.session.answers["starts"] = RequestError("unsupported", "this agent is older")
        await pilot.press("r")
        await until(pilot, lambda: "older" in str(app.screen.query_one(Table).border_title))
        assert app.screen.query_one(Table).display


async def test_r_asks_again() -> None:
    app = console(loading())
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        app.fake.session.answers["starts"] = EarlierStarts(STARTS.starts[:1])
        await pilot.press("r")
        await until(pilot, lambda: "1 earlier start " in str(app.screen.query_one(Table).border_title))


@pytest.mark.parametrize(
    ("room", "lines", "last"), [(8, 8, "4207"), (4, 4, "and 5 more"), (1, 1, "and 8 more"), (0, 0, "")]
)
def test_ranks_take_the_room_there_is(room: int, lines: int, last: str) -> None:
    found = rank_lines(loading(), 100, False, room)
    assert len(found) == lines and (not lines or last in found[-1].plain)


def test_ranks_of_an_ended_load_are_not_shown() -> None:
    assert rank_lines(replace(loading(), state="failed"), 100, False, 9) == []
