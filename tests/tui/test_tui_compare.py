"""Comparing two jobs on the screen: which two, what differs, and the curves of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from training_fakes import course, train_job
from tui_fakes import WALL, FakeSession, TestConsole, job, state, until

from eagle_console.tui.screens.compare import CompareDialog
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.table import Table
from remote.protocol.errors import RequestError
from remote.protocol.progress import Progress
from remote.protocol.series import Series

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}

NEWER = train_job()
OLDER = train_job(
    id="train-20260527-101500-9f9f", state="done", created=WALL - 90_000, seconds=1_800.0, code=0,
    parameters={"run": "0k", "epochs": 10, "optimizer": "muon"},
    progress=replace(
        train_job().progress, eta=None, ready=True,
        figures={**(train_job().progress.figures or {}), "loss": 2.02, "predicted_acceptance": 1.71},
    ),
)  # fmt: skip
JOBS = {item.id: item for item in (NEWER, OLDER, job())}


class Jobs(FakeSession):
    """Answers ``job`` and ``series`` for the job that is asked for."""

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        if op == "job":
            self.answers["job"] = JOBS.get((args or {})["job"]) or RequestError("not_found", "no such job")
        if op == "series" and not isinstance(self.answers.get("series"), Exception):
            older = (args or {})["job"] == OLDER.id
            steps = tuple(range(1, 2_000, 9))
            loss = Series("loss", steps, tuple(2.0 + 9 / (1 + step / 90) for step in steps))
            changed = course(job=OLDER.id, source="/data/eagle3-train/output_0k/metrics.jsonl", series=(loss,))
            self.answers["series"] = changed if older else course()
        return await super().request(op, args, key)


def console(*jobs: Any) -> TestConsole:
    app = TestConsole(state(*(jobs or (NEWER, job(), OLDER))))
    app.fake.session = Jobs()
    return app


def plain(app: TestConsole) -> str:
    return app.screen.query_one(Table).plain


async def opened(app: TestConsole, pilot: Pilot[Any]) -> None:
    await pilot.press("7", "equals_sign")
    await until(pilot, lambda: isinstance(app.screen, CompareDialog) and bool(app.screen.query(Table)))
    await until(pilot, lambda: "2.02" in plain(app))
    await until(pilot, lambda: len(app.fake.session.asked_for("series")) >= 2)
    await pilot.pause(0.05)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_picture(snap_compare: Any, size: tuple[int, int]) -> None:
    app = console()
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: opened(app, pilot))


def test_picture_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = console()
    assert snap_compare(app, terminal_size=(120, 34), run_before=lambda pilot: opened(app, pilot))


async def test_the_shown_run_stands_beside_the_one_before_it() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(app, pilot)
        rows = [row.split() for row in plain(app).splitlines()]
        assert ["*", "run", "0k", "1k"] in rows and ["*", "optimizer", "muon", "–"] in rows
        assert ["epochs", "10", "10"] in rows
        assert ["loss", "2.02", "1.84", "-0.18", "(-9%)"] in rows
        assert ["predicted", "acceptance", "1.71", "1.91", "+0.2", "(+12%)"] in rows
        assert "2 of 3 settings differ" in str(app.screen.query_one(Table).border_title)
        curves = app.screen.query_one("#compare-curves", Lines)
        await until(pilot, lambda: "first (1)" in curves.plain)
        assert "1" in curves.plain and "2" in curves.plain
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "training" and not isinstance(app.screen, CompareDialog))


async def test_curves_follow_the_size_of_the_terminal() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(app, pilot)
        curves = app.screen.query_one("#compare-curves", Lines)
        assert not curves.display
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: curves.display and max(map(len, curves.plain.splitlines())) == curves.size.width)
        wide = curves.size.width
        await pilot.resize_terminal(100, 40)
        await until(pilot, lambda: max(map(len, curves.plain.splitlines())) == curves.size.width < wide)


async def test_space_marks_one_job_for_another_one() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        table = app.screen.query_one("#job-table", Table)
        table.focus()
        await pilot.pause()
        table.select(job().id)
        await pilot.press("space")
        await until(pilot, lambda: f"* {job().id}" in table.plain)
        table.select(OLDER.id)
        await pilot.press("equals_sign")
        await until(pilot, lambda: isinstance(app.screen, CompareDialog) and bool(app.screen.query("#compare-head")))
        head = app.screen.query_one("#compare-head", Lines)
        await until(pilot, lambda: head.plain.startswith(f"1  {job().id}"))
        assert f"2  {OLDER.id}" in head.plain
        await pilot.pause(0.05)
        assert not app.screen.query_one("#compare-curves").display  # a server has no loss
        await pilot.press("equals_sign")
        await until(pilot, lambda: not isinstance(app.screen, CompareDialog))
        table.select(job().id)
        await pilot.press("space")
        await until(pilot, lambda: "* " not in table.plain)


async def test_a_job_that_is_alone_says_so_and_without_any_too() -> None:
    app = console(NEWER)
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("7", "equals_sign")
        await until(pilot, lambda: any("no other job of train" in notice.message for notice in app._notifications))
    app = TestConsole(state())
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("7", "equals_sign")
        await until(pilot, lambda: any("No job is selected" in notice.message for notice in app._notifications))


async def test_an_older_agent_leaves_the_table_and_a_lost_job_its_list_form() -> None:
    short = replace(OLDER, progress=Progress("proof"))
    app = console(NEWER, short)
    app.fake.session.answers["series"] = RequestError("unsupported", "older")
    JOBS.pop(OLDER.id)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("7", "equals_sign")
            await until(pilot, lambda: isinstance(app.screen, CompareDialog) and bool(app.screen.query(Table)))
            await until(pilot, lambda: "1.84" in plain(app))
            loss = next(row for row in plain(app).splitlines() if row.split()[:1] == ["loss"])
            assert loss.split() == ["loss", "–", "1.84"]
            await pilot.pause(0.05)
            assert not app.screen.query_one("#compare-curves").display
    finally:
        JOBS[OLDER.id] = OLDER
