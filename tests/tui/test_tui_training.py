"""The training screen: curves of the whole run, its checkpoints, older runs, and what happens without a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from training_fakes import adopted_training, course, train_job
from tui_fakes import NOW, TestConsole, done_check, state, until

from eagle_console.client import HostClient
from eagle_console.state import LinkState, LinkStatus, Timed
from eagle_console.training_figures import training_of, with_course
from eagle_console.tui.screens.training import TrainingScreen
from eagle_console.tui.widgets.curves import AcceptancePanel, LossPanel
from eagle_console.tui.widgets.table import Table
from eagle_console.tui.widgets.training_panel import FullTrainingPanel, TrainingPanel
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job
from remote.protocol.progress import Progress
from remote.protocol.series import Series, TrainingSeries

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}


def console(*jobs: Job, **changes: Any) -> TestConsole:
    app = TestConsole(state(*(jobs or (train_job(), done_check())), **changes))
    app.fake.session.answers["series"] = course()
    return app


def plain(app: TestConsole, kind: type[Any]) -> str:
    text: str = app.screen.query_one(kind).plain
    return text


async def opened(app: TestConsole, pilot: Pilot[Any]) -> None:
    await pilot.press("7")
    await until(pilot, lambda: isinstance(app.screen, TrainingScreen) and "checkpoint" in title(app))
    app.paint()
    await pilot.pause()


def title(app: TestConsole) -> str:
    return str(app.screen.query_one(Table).border_title)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_picture(snap_compare: Any, size: tuple[int, int]) -> None:
    app = console()
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: opened(app, pilot))


def test_picture_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = console()
    assert snap_compare(app, terminal_size=(120, 34), run_before=lambda pilot: opened(app, pilot))


def test_picture_in_ascii(snap_compare: Any) -> None:
    app = TestConsole(state(train_job()), ascii=True)
    app.fake.session.answers["series"] = course()
    assert snap_compare(app, terminal_size=(80, 24), run_before=lambda pilot: opened(app, pilot))


async def test_it_shows_figures_curves_and_checkpoints() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        run = plain(app, FullTrainingPanel)
        for words in ("RUNNING", "epoch 4/10", "step 3,912/10,000", "6 steps/s", "done in 15:00 to 18:10",
                      "from 3,912 steps", "41,234 tokens/s", "GPU waits for data 3%", "lr 6.1e-05",
                      "validation loss 1.97"):  # fmt: skip
            assert words in run, words
        assert "t training" in plain(app, LossPanel) and "v validation 1.97" in plain(app, LossPanel)
        assert "predicts" in plain(app, AcceptancePanel) and "validation 1.91  acc 0.61 0.42 0.29" in plain(
            app, AcceptancePanel
        )
        assert "e2" in plain(app, LossPanel)
        rows = app.screen.query_one(Table).plain.splitlines()
        assert [row.split()[0] for row in rows] == ["2", "1", "0"]
        assert "1.970" in rows[0] and "1.91" in rows[0] and "8.9 GB" in rows[0]
        assert "stale" in rows[0]
        assert app.fake.session.asked_for("checkpoints")[-1] == {"dir": course().folder}


async def test_brackets_go_through_the_runs_and_enter_opens_the_log() -> None:
    older = train_job(id="train-20260527-1", state="done", created=1.0, parameters={"run": "0k"})
    app = console(train_job(), older)
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: app.fake.session.asked_for("series")[-1] == {"job": older.id})
        assert "0k" in str(app.screen.query_one(FullTrainingPanel).border_title)
        assert not app.screen.query_one(Table).plain  # nothing of the run before stays under this one's name
        await pilot.press("left_square_bracket", "right_square_bracket")
        await until(pilot, lambda: app.fake.session.asked_for("series")[-1] == {"job": train_job().id})
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "logs")
        assert app.screen.selected_job().id == train_job().id  # type: ignore[attr-defined]


async def test_r_asks_again_and_the_answer_replaces_the_curves() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        app.fake.session.answers["series"] = course(checkpoints=course().checkpoints[:1])
        await pilot.press("r")
        await until(pilot, lambda: title(app).startswith("1 checkpoint"))


async def test_a_lost_connection_keeps_the_curves_dimmed_and_the_next_one_asks_again() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        before = plain(app, LossPanel).splitlines()[0]
        app.fake.connected = False
        down = LinkStatus(LinkState.WAITING, "lost", "", 1, NOW + 9)
        app.fake.publish(replace(app.state, link=down))
        await until(pilot, lambda: "DOWN" in str(app.screen.query_one(LossPanel).border_title))
        assert plain(app, LossPanel).splitlines()[0] == before and "⣀" in plain(app, LossPanel)
        asked = len(app.fake.session.asked_for("series"))
        app.fake.connected = True
        app.fake.session = type(app.fake.session)()
        app.fake.session.answers["series"] = course()
        app.fake.publish(replace(app.state, link=LinkStatus(LinkState.LIVE)))
        await until(pilot, lambda: len(app.fake.session.asked_for("series")) > 0)
        assert asked > 0


async def test_a_run_without_records_says_so_and_a_refusal_too() -> None:
    app = console()
    app.fake.session.answers["series"] = TrainingSeries(train_job().id, problem="the run has not recorded anything yet")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(app, pilot)
        assert "not recorded anything" in plain(app, LossPanel)
        assert title(app).startswith("No checkpoint yet")
        app.fake.session.answers["series"] = RequestError("unsupported", "this agent is older")
        app.screen.answer = None  # type: ignore[attr-defined]
        await pilot.press("r")
        await until(pilot, lambda: "older" in plain(app, LossPanel))


async def test_a_folder_that_triage_does_not_judge_has_no_verdicts() -> None:
    app = console()
    app.fake.session.answers["checkpoints"] = RequestError("not_found", "no run")
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        assert "–" in app.screen.query_one(Table).plain and "stale" not in app.screen.query_one(Table).plain


async def test_a_run_that_was_moved_keeps_its_verdicts() -> None:
    app = console()
    moved = tuple(replace(saved, path=f"/before/{saved.path}") for saved in course().checkpoints)
    app.fake.session.answers["series"] = course(checkpoints=moved)
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        assert "stale" in app.screen.query_one(Table).plain


async def test_a_broken_loss_is_said() -> None:
    app = console()
    broken = (Series("loss", (1, 2, 3), (2.0, None, None)),)
    app.fake.session.answers["series"] = course(series=broken, broken_since=2, complete=False)
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        assert "THE LOSS IS NO NUMBER since step 2" in title(app) and "still being read" in title(app)


async def test_a_run_that_is_not_ours() -> None:
    app = console(done_check(), adopted=Timed(adopted_training(), NOW))
    app.fake.session.answers["series"] = course(job="adopted-4711")
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        run = plain(app, FullTrainingPanel)
        assert "not ours, alice's" in run and "step 1,204/~10,000" in run
        await pilot.press("0")
        assert "not ours" in plain(app, TrainingPanel)


async def test_no_run_says_how_to_begin_one_and_x_stops_the_shown_one() -> None:
    app = console(done_check())
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("7")
        await until(pilot, lambda: isinstance(app.screen, TrainingScreen))
        app.paint()
        assert "run gpu-box train --follow" in plain(app, FullTrainingPanel)
        assert not app.fake.session.asked_for("series")
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(app, pilot)
        await pilot.press("x")
        await pilot.pause()
        await pilot.press("y")
        await until(pilot, lambda: bool(app.fake.session.asked_for("stop")))
        assert app.fake.session.asked_for("stop")[0]["job"] == train_job().id


async def test_the_dashboard_shows_our_run_and_enter_opens_it() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        panel = app.screen.query_one(TrainingPanel)
        assert "step 3,912/10,000" in panel.plain and "0.61 0.42 0.30" in panel.plain and "predicts 1.95" in panel.plain
        panel.focus()
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "training")


async def test_the_dashboard_has_the_histories_of_our_run() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        panel = app.screen.query_one(TrainingPanel)
        await until(pilot, lambda: "█" in panel.plain)
        line = next(line for line in panel.plain.splitlines() if line.startswith("loss"))
        assert "█" in line and line.rstrip()[-1] in "▁▂" and len(line.split()[-1]) == 16
        assert app.fake.session.asked_for("series") == [{"job": train_job().id}]
        newer = train_job(id="train-newer", created=train_job().created + 1)
        app.fake.session.answers["series"] = course(job=newer.id)
        app.fake.publish(state(newer, train_job(state="done")))
        await until(pilot, lambda: app.fake.session.asked_for("series")[-1] == {"job": newer.id})


def test_histories_are_even_and_those_of_a_log_stay() -> None:
    run = training_of(train_job())
    assert run is not None
    values = tuple(float(n) for n in range(240))
    found = with_course(run, TrainingSeries("x", series=(Series("loss", tuple(range(240)), values),)))
    assert found.losses == tuple(float(n) for n in range(14, 240, 15)) and found.accuracies == ()
    short = TrainingSeries("x", series=(Series("loss", (1, 2), (3.0, None)),))
    assert with_course(run, short).losses == (3.0, None)
    assert with_course(replace(run, losses=(1.0,)), short).losses == (1.0,)


async def test_what_is_wrong_with_a_run_is_said_once() -> None:
    stalled = replace(train_job().progress, bottleneck="No step for 4 min, where the longest took 2 s.")
    app = console(train_job(progress=stalled))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert plain(app, TrainingPanel).count("No step for 4 min") == 1
        await opened(app, pilot)
        assert plain(app, FullTrainingPanel).count("No step for 4 min") == 1


@pytest.mark.parametrize(
    ("job", "known"),
    [
        (train_job(), True),
        (train_job(stage="classic"), True),
        (train_job(progress=Progress("import")), False),
        (train_job(stage="serve"), False),
    ],
)
def test_figures_of_a_job_as_a_run(job: Job, known: bool) -> None:
    found = training_of(job)
    assert (found is not None) == known
    if found is not None:
        assert (found.epoch, found.step, found.total_steps, found.steps_per_second) == (4, 3_912, 10_000, 6.0)
        assert found.accuracy == (0.61, 0.42, 0.3) and found.predicted_length == pytest.approx(1.95)


def test_a_figure_that_was_not_told_is_unknown() -> None:
    progress = Progress("train", done=3, total=9, unit="steps", figures={"epoch": 1.0})
    found = training_of(train_job(progress=progress))
    assert found is not None
    assert (found.loss, found.predicted_length, found.steps_per_second, found.accuracy) == (None, None, None, ())


async def test_the_operation_is_asked_with_the_id() -> None:
    app = console()
    answer = await HostClient(app.fake.session).series("train-20")
    assert answer == course() and app.fake.session.asked_for("series") == [{"job": "train-20"}]
