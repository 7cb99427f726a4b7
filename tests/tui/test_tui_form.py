"""The form of a stage: choices checked and completed as typed, and what was given the last time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input
from tui_fakes import TestConsole, job, state, until

from eagle_console.tui import stage_form_model as model
from eagle_console.tui.screens.stage_form import StageForm
from pipeline.plan.catalog import STAGES
from remote.jobs.planning import Plan
from remote.protocol.jobs import Job
from remote.protocol.stages import ParameterInfo, StageInfo, StageList

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}

PARAMETERS = (
    ParameterInfo("verifier", "path", "the model's folder", "/data/models/Kimi-K2.5"),
    ParameterInfo("port", "int", "where it listens", 8000, minimum=1, maximum=65_535),
    ParameterInfo("optimizer", "str", "how it learns", "adamw", choices=("adamw", "muon")),
    ParameterInfo("eager", "bool", "without compiled graphs", False),
)
STAGE = StageInfo(
    "serve", "service", "vLLM with the verifier", "ok", (), PARAMETERS, "vllm serve /data/models/Kimi-K2.5"
)

LAST = job(
    state="stopped",
    parameters={"verifier": "/data/models/Kimi-K2.5", "port": 8011, "optimizer": "muon", "eager": True, "gone": 1},
)


def console(*jobs: Job) -> TestConsole:
    app = TestConsole(state(*jobs))
    app.fake.session.answers["stages"] = StageList((STAGE,))
    return app


async def opened(app: TestConsole, pilot: Pilot[Any]) -> StageForm:
    await pilot.press("s")
    await until(pilot, lambda: isinstance(app.screen, StageForm) and app.screen._plan is not None)
    assert isinstance(app.screen, StageForm)
    return app.screen


def shown(form: StageForm, selector: str) -> str:
    return str(form.query_one(selector).render())


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_picture(snap_compare: Any, size: tuple[int, int]) -> None:
    app = console(LAST)

    async def show(pilot: Pilot[Any]) -> None:
        form = await opened(app, pilot)
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "optimizer=muon" in shown(form, "#form-command"))

    assert snap_compare(app, terminal_size=size, run_before=show)


async def test_ctrl_l_fills_in_what_was_given_the_last_time() -> None:
    app = console(job(id="other", stage="check", parameters={"port": 1}), LAST)
    app.fake.session.answers["launch"] = job(state="starting")
    async with app.run_test(size=(120, 34)) as pilot:
        form = await opened(app, pilot)
        assert "last used: port=8011  optimizer=muon  eager=true" in shown(form, "#form-last")
        form.query_one("#value-0", Input).value = "/somewhere/else"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "port=8011 optimizer=muon eager=True" in shown(form, "#form-command"))
        assert form.query_one("#value-0", Input).value == ""  # the default again
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(app.fake.session.asked_for("launch")))
        assert app.fake.session.asked_for("launch")[0]["parameters"] == {
            "port": 8011, "optimizer": "muon", "eager": True,
        }  # fmt: skip


async def test_an_answer_that_comes_while_the_form_is_taken_away_does_no_harm() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        form = await opened(app, pilot)
        await form.remove_children()
        form._refresh_verdict()
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not form)


async def test_without_an_earlier_job_it_says_so() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        form = await opened(app, pilot)
        assert shown(form, "#form-last") == ""
        await pilot.press("ctrl+l")
        await until(pilot, lambda: any("No job of this stage" in notice.message for notice in app._notifications))


async def test_a_value_that_is_none_of_the_choices_is_refused_while_typing_and_the_right_one_completed() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        form = await opened(app, pilot)
        assert "adamw | muon" in shown(form, "#note-2")
        field = form.query_one("#value-2", Input)
        field.focus()
        await pilot.press("s", "g", "d")
        await pilot.pause()
        assert "one of adamw, muon" in shown(form, "#note-2")
        field.value = ""
        await pilot.press("m")
        await until(pilot, lambda: field._suggestion == "muon")
        await pilot.press("right")
        await until(pilot, lambda: field.value == "muon")
        await until(pilot, lambda: "optimizer=muon" in shown(form, "#form-command"))


@pytest.mark.parametrize(
    ("jobs", "found"),
    [
        ((), {}),
        ((LAST,), {"port": "8011", "optimizer": "muon", "eager": "true"}),
        ((replace(LAST, stage="train"),), {}),
        ((replace(LAST, parameters={}), LAST), {"port": "8011", "optimizer": "muon", "eager": "true"}),
        ((replace(LAST, parameters={"port": 99_999, "optimizer": ["x"], "eager": None}),), {}),
        ((replace(LAST, parameters={"port": 8_000}),), {}),
    ],
)
def test_what_was_used_last(jobs: tuple[Job, ...], found: dict[str, str]) -> None:
    assert model.last_used(PARAMETERS, jobs, "serve") == found


def test_the_choices_of_the_catalogue_reach_the_form() -> None:
    with_choices = [stage for stage in STAGES if any(parameter.choices for parameter in stage.parameters)]
    assert with_choices
    for stage in with_choices:
        plan = Plan(stage, {p.name: p.default for p in stage.parameters}, None, _Command(), (), None)  # type: ignore[arg-type]
        for parameter, info in zip(stage.parameters, plan.info.parameters, strict=True):
            assert info.choices == parameter.choices


class _Command:
    line = ""
