"""Text from a host in every field of every record: nothing crashes, nothing reaches the terminal unclean."""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import Any

import pytest
from fixtures import disk_records
from training_fakes import adopted_training, course, train_job
from tui_fakes import NOW, TestConsole, chunk, disk, failed_job, gpus, hello, host_sample, job, stage_list, state

from eagle_console.state import HostKeyQuestion, HostState, LinkState, LinkStatus, Timed
from eagle_console.tui.actions import SCREENS
from eagle_console.tui.screens.compare import CompareDialog
from eagle_console.tui.screens.prune_dialog import PruneDialog
from eagle_console.tui.screens.purge_dialog import PurgeDialog
from eagle_console.tui.widgets.curves import AcceptancePanel
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.jobs import Job, JobList
from remote.protocol.progress import Eta, RankShard
from remote.protocol.starts import EarlierStart, EarlierStarts

HOSTILE = {
    "unclosed markup": "[/",
    "a path like markup": "[/data/x]",
    "a style": "[bold red]x[/] [link=http://x]y[/link] $error",
    "escape sequences": "\x1b[2J\x1b]0;title\x07\x1b[31mred\x9b1m",
    "ten kilobytes": "x" * 10_000,
    "wide": "模型加载" * 40,
    "bidirectional": "\u202eevil\u2066/data\u200f\u061c",
    "line ends": "one\ntwo\r\nthree\x85four\u2028five",
    "surrogates and combining": "\ud800 e\u0301\u0301\u0301 \u200b\ufeff\x00",
    "empty": "",
}
_KEPT = {
    ("Verdict", "word"),
    ("Receipt", "state"),
    ("ReceiptItem", "state"),
    ("Gpu", "state"),
    ("GpuSnapshot", "driver"),
    ("Job", "state"),
    ("Job", "stage"),
    ("StageInfo", "verdict"),
    ("Series", "name"),
    ("Adopted", "kind"),
    ("Adopted", "state"),
}
"""Fields whose value decides what is shown; a second pass below makes them hostile too."""


def poison(value: Any, text: str, keep: bool = True) -> Any:
    """The record with every string in it, keys of dicts included, replaced."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        return dataclasses.replace(
            value,
            **{
                field.name: poison(getattr(value, field.name), text, keep)
                for field in dataclasses.fields(value)
                if not (keep and (name, field.name) in _KEPT)
            },
        )
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(poison(item, text, keep) for item in value)
    if isinstance(value, dict):
        return {f"{text}{number}": poison(item, text, keep) for number, item in enumerate(value.values())}
    return value


def loading() -> Any:
    """A load with everything that can be said about one."""
    told = {"eta": Eta(9.0, 8.0, 10.0, "from"), "bottleneck": "Stalled.", "ranks": (RankShard(1, "x", 1, 2),)}
    return dataclasses.replace(job().progress, read_rate=1e9, **told)


STARTS = EarlierStarts((EarlierStart("m", "d", "f", 8, "v", "warm", {"weights": 9.0}, 1e9, False, 1.0),))


def poisoned_state(text: str, keep: bool) -> HostState:
    trains = train_job(simulated=True)
    poisoned = poison(trains, text, keep)
    figures = trains.progress.figures if keep else poisoned.progress.figures
    trains = dataclasses.replace(poisoned, progress=dataclasses.replace(poisoned.progress, figures=figures))
    loads = poison(job(note="n", progress=loading()), text, keep)
    jobs = JobList((trains, poison(failed_job(), text, keep), loads), problem="")
    return state(
        hello=poison(hello(), text, keep),
        gpus=Timed(poison(gpus(lost=True), text, keep), NOW),
        host=Timed(host_sample(), NOW),
        disk=Timed(poison(disk(), text, keep), NOW),
        jobs=Timed(jobs, NOW),
        adopted=Timed(poison(adopted_training(), text, keep), NOW),
        problems={"gpus": text, "jobs": text, "disk": text},
    )


def screen_lines(app: TestConsole) -> list[str]:
    """What the terminal would show, line by line."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def assert_clean(app: TestConsole) -> None:
    width = app.size.width
    for line in screen_lines(app):
        bad = [sign for sign in line if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert not bad, repr(line)
        line.encode("utf-8")
    for strip in app.screen._compositor.render_strips():
        assert strip.cell_length == width


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(
    ("keep", "size"), [(True, (120, 34)), (False, (80, 24))], ids=["states kept, 120x34", "states too, 80x24"]
)
async def test_every_field(text: str, keep: bool, size: tuple[int, int]) -> None:
    app = TestConsole(poisoned_state(text, keep))
    app.fake.session.answers["stages"] = poison(stage_list(True), text, keep)
    for op, record in disk_records.answers().items():
        app.fake.session.answers[op] = poison(record, text, keep)
    app.fake.session.answers["series"] = poison(course(), text, keep)
    app.fake.session.answers["starts"] = poison(STARTS, text, keep)
    app.fake.session.answers["job"] = poison(train_job(), text, keep)
    app.fake.session.log.put_nowait(chunk(*[text] * 5))
    async with app.run_test(size=size) as pilot:
        for screen in SCREENS:
            await app.action_go(screen)
            await pilot.pause()
            await pilot.pause()
            assert_clean(app)
            if screen == "training" and keep and text:  # the hostile answer is on the screen, not only asked for
                await pilot.pause(0.1)
                assert "predicts" in app.screen.query_one(AcceptancePanel).plain
                assert_clean(app)
        app.ask_to_stop(poison(job(), text))
        await pilot.pause()
        assert_clean(app)
        await pilot.press("escape")
        app.action_leave()
        await pilot.pause()
        assert_clean(app)
        await pilot.press("escape")
        app.open_form(poison(stage_list(), text).stages[1])
        await pilot.pause()
        assert_clean(app)
        await pilot.press("escape")
        app.say(text)
        await pilot.pause()
        assert_clean(app)
        plan = poison(disk_records.plan(confirm="x", unseen="x"), text)
        app.push_screen(PruneDialog(text, plan, text, text))
        await pilot.pause()
        assert_clean(app)
        await pilot.press("escape")
        app.push_screen(CompareDialog(poison(train_job(), text, keep), poison(job(), text, keep)))
        await pilot.pause(0.05)
        assert_clean(app)
        await pilot.press("escape")
        app.push_screen(PurgeDialog(poison(disk_records.receipt(), text, keep), text))
        await pilot.pause()
        assert_clean(app)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_the_link_and_its_question(text: str) -> None:
    question = HostKeyQuestion(text, 22, text, text, text)
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        for kind in (LinkState.FAILED, LinkState.WAITING, LinkState.UNKNOWN_HOST_KEY):
            link = LinkStatus(kind, text, text, 2, NOW + 9, question)
            app.fake.publish(HostState(name=text, link=link, gpus=Timed(GpuSnapshot(text, message=text), NOW)))
            await pilot.pause()
            await pilot.pause()
            assert_clean(app)


async def test_a_host_that_repeats_an_id_breaks_no_table() -> None:
    twice: tuple[Job, ...] = (job(), job())
    app = TestConsole(state(*twice))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert app.current_mode == "stages"
