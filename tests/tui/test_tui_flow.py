"""What a person does: starts and stops stages, reads logs, answers questions, loses the connection, quits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input
from tui_fakes import (
    NOW,
    PROFILE,
    FakeLink,
    TestConsole,
    chunk,
    done_check,
    failed_job,
    gpus,
    hello,
    job,
    ready_job,
    stage_list,
    state,
    until,
)

from eagle_console import cli
from eagle_console.exit_codes import ExitCode
from eagle_console.link.connect import Target
from eagle_console.link.errors import ConnectionLost
from eagle_console.state import HostKeyQuestion, HostState, LinkState, LinkStatus, Timed
from eagle_console.tui.app import ConsoleApp, run
from eagle_console.tui.screens.dialogs import HostKeyDialog, QuitDialog, StopDialog
from eagle_console.tui.screens.stage_form import StageForm
from eagle_console.tui.widgets.gpu_panel import GpuPanel
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.log_view import LogView
from remote.protocol.errors import CONFLICT, RequestError

QUESTION = HostKeyQuestion("gpu-box", 22, "ssh-ed25519", "SHA256:abc", "gpu-box ssh-ed25519 AAAA")


def text_of(app: TestConsole, selector: str) -> str:
    return app.screen.query_one(selector, Lines).plain


def notices(app: TestConsole) -> str:
    return "\n".join(notification.message for notification in app._notifications)


def sent(app: TestConsole, op: str) -> list[dict[str, object]]:
    return [args for name, args, _ in app.fake.session.asked if name == op]


async def open_form(app: TestConsole, pilot: Pilot[None]) -> StageForm:
    await pilot.press("s")
    await until(pilot, lambda: isinstance(app.screen, StageForm))
    form = app.screen
    assert isinstance(form, StageForm)
    return form


def shown(form: StageForm, selector: str) -> str:
    return str(form.query_one(selector).render())


async def test_a_stage_is_started_with_the_typed_values() -> None:
    app = TestConsole(state())
    app.fake.session.answers["launch"] = job(state="starting")
    async with app.run_test(size=(120, 34)) as pilot:
        form = await open_form(app, pilot)
        form.query_one("#value-1", Input).value = "8001"
        await until(pilot, lambda: "port=8001" in shown(form, "#form-command"))
        assert not form.query_one("#accept", Button).disabled
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is not form)
        (request,) = sent(app, "launch")
        assert request["stage"] == "serve"
        assert request["parameters"] == {"port": 8001}
        assert request["requested_by"] == "someone@console"
        assert request["context"]["verifier"] == "/data/models/Kimi-K2.5"  # type: ignore[index]
        assert "was started" in notices(app)


async def test_the_stages_screen_says_what_there_is_to_say_about_the_selected_job() -> None:
    gone = job(id="check-20260528-190000-77aa", stage="check", state="gone", note="the host has started anew since")
    app = TestConsole(state(failed_job(), gone))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("2")
        await until(pilot, lambda: "$ python -m x" in text_of(app, "#stage-detail"))
        app.screen.query_one("#job-table").focus()
        await until(pilot, lambda: "GPU 0 has 3.1 GiB free of" in text_of(app, "#stage-detail"))
        await pilot.press("down")
        await until(pilot, lambda: "the host has started anew since" in text_of(app, "#stage-detail"))
        app.screen.query_one("#stage-table").focus()
        await until(pilot, lambda: "$ python -m x" in text_of(app, "#stage-detail"))


async def test_a_wrong_value_says_why_and_disables_the_start() -> None:
    app = TestConsole(state())
    async with app.run_test(size=(120, 34)) as pilot:
        form = await open_form(app, pilot)
        await until(pilot, lambda: not form.query_one("#accept", Button).disabled)
        form.query_one("#value-1", Input).focus()
        await pilot.press(*"99999")
        await pilot.pause()
        assert "at most 65535" in shown(form, "#note-1")
        assert "at most 65535" in shown(form, "#form-obstacle")
        assert form.query_one("#accept", Button).disabled
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert app.screen is form
        assert not sent(app, "launch")


async def test_a_blocked_stage_says_why() -> None:
    app = TestConsole(state())
    app.fake.session.answers["stages"] = stage_list(blocked=True)
    async with app.run_test(size=(120, 34)) as pilot:
        form = await open_form(app, pilot)
        await until(pilot, lambda: "Blocked by gpu_memory" in shown(form, "#form-obstacle"))
        assert "GPU 0 has 3.1 GiB free. Free the GPUs first." in shown(form, "#form-checks")
        assert form.query_one("#accept", Button).disabled


async def test_a_read_only_host_starts_and_stops_nothing() -> None:
    app = TestConsole(state(job(), hello=hello(readonly=True)))
    async with app.run_test(size=(120, 34)) as pilot:
        assert "READ-ONLY" in text_of(app, "#status")
        form = await open_form(app, pilot)
        assert "read-only" in shown(form, "#form-obstacle")
        await pilot.press("escape", "x")
        await pilot.pause()
        assert not isinstance(app.screen, StopDialog)
        assert "read-only" in notices(app)


async def test_trying_again_after_a_lost_answer_is_the_same_job() -> None:
    app = TestConsole(state())
    app.fake.session.answers["launch"] = ConnectionLost("the link ended", "R connects again")
    async with app.run_test(size=(120, 34)) as pilot:
        form = await open_form(app, pilot)
        await until(pilot, lambda: not form.query_one("#accept", Button).disabled)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "the link ended" in shown(form, "#form-obstacle"))
        app.fake.session.answers["launch"] = job(state="starting")
        form.query_one("#value-1", Input).value = "8000"
        await until(pilot, lambda: not form.query_one("#accept", Button).disabled)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is not form)
        keys = [key for name, _, key in app.fake.session.asked if name == "launch"]
        assert len(keys) == 2
        assert keys[0] == keys[1]


async def test_stopping_says_what_is_lost_and_only_y_stops() -> None:
    app = TestConsole(state(job(seconds=1_100.0)))
    app.fake.session.answers["stop"] = job(state="stopping")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("x")
        await pilot.pause()
        dialog = app.screen
        assert isinstance(dialog, StopDialog)
        assert "18 min of loading" in str(dialog.query_one(".dialog-text").render())
        assert dialog.query_one("#cancel").has_focus
        await pilot.press("enter", "space")
        await pilot.pause()
        assert app.screen is dialog
        assert not sent(app, "stop")
        await pilot.press("y")
        await until(pilot, lambda: bool(sent(app, "stop")))
        assert sent(app, "stop") == [{"job": job().id, "requested_by": "someone@console", "force": False}]


async def test_escape_keeps_the_job_and_a_second_stop_forces() -> None:
    app = TestConsole(state(job(state="stopping")))
    app.fake.session.answers["stop"] = job(state="stopping")
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("x", "escape")
        await pilot.pause()
        assert not sent(app, "stop")
        await pilot.press("x")
        await pilot.pause()
        assert "SIGKILL" in str(app.screen.query_one(".dialog-text").render())
        await pilot.press("y")
        await until(pilot, lambda: bool(sent(app, "stop")))
        assert sent(app, "stop")[0]["force"] is True


async def test_a_refused_stop_is_told() -> None:
    app = TestConsole(state(job()))
    app.fake.session.answers["stop"] = RequestError(CONFLICT, "it has [/already] ended", "Look at the jobs.")
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("x", "y")
        await until(pilot, lambda: "it has [/already] ended" in notices(app))


async def test_quitting_asks_only_while_jobs_run() -> None:
    app = TestConsole(state(done_check()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0
    app = TestConsole(state(job(), ready_job()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, QuitDialog)
        assert "2 jobs keep running on gpu-box" in str(app.screen.query_one(".dialog-text").render())
        assert app.screen.query_one("#cancel").has_focus
        await pilot.press("enter")
        await pilot.pause()
        assert not isinstance(app.screen, QuitDialog)
        assert app.is_running


@pytest.mark.parametrize(
    ("keys", "trusted"), [(("enter",), False), (("escape",), False), (("tab", "enter"), True)], ids=str
)
async def test_an_unknown_host_key_is_a_question(keys: tuple[str, ...], trusted: bool) -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        app.fake.connected = False
        app.fake.publish(HostState("gpu-box", LinkStatus(LinkState.UNKNOWN_HOST_KEY, question=QUESTION)))
        await until(pilot, lambda: isinstance(app.screen, HostKeyDialog) and bool(app.screen.query(".dialog-text")))
        assert "SHA256:abc" in str(app.screen.query_one(".dialog-text").render())
        await pilot.press(*keys)
        await pilot.pause()
        assert app.fake.trusted == ([QUESTION] if trusted else [])
        await pilot.press("R")  # a declined question can be asked again
        await pilot.pause()
        assert isinstance(app.screen, HostKeyDialog)


async def test_the_question_leaves_when_the_link_goes_on() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        app.fake.publish(HostState("gpu-box", LinkStatus(LinkState.UNKNOWN_HOST_KEY, question=QUESTION)))
        await until(pilot, lambda: isinstance(app.screen, HostKeyDialog))
        app.fake.publish(HostState("gpu-box", LinkStatus(LinkState.CONNECTING)))
        await until(pilot, lambda: not isinstance(app.screen, HostKeyDialog))
        assert app.fake.trusted == []


async def test_freshness_follows_the_clock_and_the_link() -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        panel = app.screen.query_one(GpuPanel)
        assert "LIVE" in panel._title.plain
        app.clock.now = NOW + 12
        app.paint()
        assert "STALE 12s" in panel._title.plain
        assert "STALE 12s" in text_of(app, "#status")
        assert all("dim" in str(line.spans) for line in panel._lines if line)
        app.fake.publish(state(job(), link=LinkStatus(LinkState.WAITING, "no answer for 15 s", retry_at=NOW + 19)))
        await pilot.pause()
        assert "DOWN 12s" in panel._title.plain
        assert "next try in 7s" in text_of(app, "#status")
        assert "no answer for 15 s" in text_of(app, "#banner")


async def test_a_failed_link_shows_its_remedy() -> None:
    app = TestConsole()
    async with app.run_test(size=(80, 24)) as pilot:
        link = LinkStatus(LinkState.FAILED, "gpu-box refuses the user root", "ssh-add your key")
        app.fake.publish(HostState("gpu-box", link))
        await pilot.pause()
        banner = text_of(app, "#banner")
        assert "refuses the user root" in banner
        assert "ssh-add your key" in banner
        assert "R tries again" in banner
        await pilot.press("R")
        assert app.fake.reconnects == 1


async def test_a_log_is_filtered_and_its_bars_are_folded() -> None:
    app = TestConsole(state(job()))
    bars = [f"Loading shards: {done}% Completed | {done}/64 [00:01<00:02]" for done in range(60)]
    app.fake.session.log.put_nowait(chunk("INFO first", *bars, "INFO second"))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("3")
        log = app.screen.query_one(LogView)
        await until(pilot, lambda: log.buffer.total == 3)
        assert log.buffer.shown[1] == bars[-1]
        await pilot.press("slash", *"second")
        await pilot.pause()
        assert log.buffer.shown == ["INFO second"]
        app.fake.session.log.put_nowait(chunk("INFO third", "INFO second again"))
        await until(pilot, lambda: log.buffer.total == 5)
        assert log.buffer.shown == ["INFO second", "INFO second again"]
        await pilot.press("enter")
        await pilot.pause()
        assert log.has_focus
        app.paint()
        assert "  2 of 5 lines" in text_of(app, "#log-head")
        await pilot.press("escape")
        await pilot.pause()
        assert len(log.buffer.shown) == 5


async def test_a_log_that_is_longer_than_what_was_read_says_so() -> None:
    app = TestConsole(state(job()))
    app.fake.session.log.put_nowait(replace(chunk("INFO one", "INFO two"), offset=300_000_000))
    app.fake.session.log.put_nowait(chunk("INFO three"))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: app.screen.query_one(LogView).buffer.total == 3)
        app.paint()
        assert "the last 3 lines, following" in text_of(app, "#log-head")
        await pilot.press("slash", *"two", "enter")
        await pilot.pause()
        app.paint()
        assert " 1 of the last 3 lines, " in text_of(app, "#log-head")


async def test_a_fast_log_stays_bounded_and_followed() -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("3")
        log = app.screen.query_one(LogView)
        for batch in range(50):
            app.fake.session.log.put_nowait(chunk(*[f"line {batch * 500 + number}" for number in range(500)]))
        await until(pilot, lambda: bool(log.buffer.shown) and log.buffer.shown[-1] == "line 24999")
        assert log.buffer.total <= 20_000
        assert log.buffer.dropped == 25_000 - log.buffer.total
        assert log.scroll_y == log.max_scroll_y


async def test_a_lost_connection_reads_the_log_again() -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: len(app.fake.session.subscribed) == 1)
        app.fake.session.log.put_nowait(ConnectionLost("the link ended"))
        await until(pilot, lambda: "the link ended" in app.screen._trouble)  # type: ignore[attr-defined]
        first = app.fake.session
        app.fake.session = type(first)()
        app.paint()
        await until(pilot, lambda: len(app.fake.session.subscribed) == 1)


async def test_a_failed_load_shows_class_cause_remedy_and_line() -> None:
    app = TestConsole(state(failed_job()))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        text = text_of(app, "#load")
        for word in ("FAILED", "exit 1", "gpu_memory_busy", "wants 86.0 GiB", "pid 991", "[/data/x]"):
            assert word in text.replace("\n        ", " "), word


async def test_unknown_is_a_dash_and_trouble_is_words() -> None:
    app = TestConsole(state(gpus=Timed(gpus(lost=True), NOW)))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        lines = text_of(app, "#gpus").split("\n")
        assert "LOST" in lines[4]
        assert "GPU is lost" in lines[4]
        assert "SILENT" in lines[6]
        assert "hangs for 12 s" in lines[6]
        assert lines[7].count("–") == 4
        assert "0%" not in lines[7]


async def test_replays_and_simulations_say_so() -> None:
    snapshot = gpus()
    simulated = type(snapshot)("ok", snapshot.gpus, simulated=True)
    app = TestConsole(state(job(simulated=True), gpus=Timed(simulated, NOW)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "SIMULATED" in text_of(app, "#status")
        assert "REPLAY" in text_of(app, "#status")
        assert "REPLAY" in text_of(app, "#load")


@pytest.mark.parametrize("size", [(59, 24), (80, 15), (20, 5)])
async def test_a_small_terminal_gets_a_sentence(size: tuple[int, int]) -> None:
    app = TestConsole(state(job()))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert app.screen.query_one("#too-small").display
        assert not app.screen.query_one("#body").display
        await pilot.resize_terminal(120, 34)
        await pilot.pause()
        assert app.screen.query_one("#body").display


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (100, 30), (120, 34), (200, 50), (300, 80)])
async def test_every_size_has_all_panels_and_full_lines(size: tuple[int, int]) -> None:
    app = TestConsole(state(job(), done_check()))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for panel in ("#gpus", "#load", "#training", "#disk"):
            assert text_of(app, panel).strip(), panel
        for strip in app.screen._compositor.render_strips():
            assert strip.cell_length == size[0]


async def test_a_crash_ends_the_screen_and_prints_no_locals(capsys: pytest.CaptureFixture[str]) -> None:
    app = TestConsole(state())

    def broken() -> None:
        hf_token = "hf_secretsecret"
        raise RuntimeError(f"a defect of {len(hf_token)}")

    with pytest.raises(RuntimeError, match="a defect"):
        async with app.run_test(size=(80, 24)) as pilot:
            app.call_later(broken)
            await pilot.pause()
    assert isinstance(app.crash, RuntimeError)
    assert app.return_code == ExitCode.CRASH
    captured = capsys.readouterr()
    assert "hf_secretsecret" not in captured.out + captured.err
    assert not app._exit_renderables


async def test_a_defect_of_the_link_is_the_crash_itself() -> None:
    app = TestConsole(state())

    async def defect() -> None:
        raise KeyError("topic")

    with pytest.raises(KeyError, match="topic"):
        async with app.run_test(size=(80, 24)) as pilot:
            app.run_worker(defect())
            await pilot.pause(0.1)
    assert isinstance(app.crash, KeyError)


def test_the_command_leaves_a_report_and_exits_70(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(FakeLink):
        def __init__(self, target: Target, publish: Callable[[HostState], None]) -> None:
            super().__init__(publish)

        async def run(self) -> None:
            hf_token = "hf_secretsecret"
            raise RuntimeError(f"a defect, HF_TOKEN={hf_token}")

    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr("eagle_console.tui.app.Supervisor", Broken)
    monkeypatch.setattr(ConsoleApp, "run", partialmethod(ConsoleApp.run, headless=True))
    monkeypatch.setattr("eagle_console.commands.screen.has_terminal", lambda: True)
    assert cli.main(["someone@gpu-box"]) == ExitCode.CRASH
    (report,) = (tmp_path / "eagle-console" / "crash").iterdir()
    text = report.read_text(encoding="utf-8")
    assert "a defect" in text
    assert "in run" in text
    printed = capsys.readouterr()
    assert str(report) in printed.err
    assert "hf_secretsecret" not in text + printed.out + printed.err


def test_leaving_says_what_keeps_running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Fake(FakeLink):
        def __init__(self, target: Target, publish: Callable[[HostState], None]) -> None:
            super().__init__(publish)

        async def run(self) -> None:
            self.publish(state(job(), ready_job()))
            await super().run()

    async def leave(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(pilot.app.state.live_jobs()))  # type: ignore[attr-defined]
        await pilot.press("q", "q")

    monkeypatch.setattr("eagle_console.tui.app.Supervisor", Fake)
    monkeypatch.setattr(ConsoleApp, "run", partialmethod(ConsoleApp.run, headless=True, auto_pilot=leave))
    assert run(Target(PROFILE)) == ExitCode.DONE
    assert "2 jobs keep running on gpu-box" in capsys.readouterr().err


async def test_a_tick_while_the_program_ends_paints_nothing() -> None:
    """The screens lose their widgets one by one then, and the clock still ticks."""
    app = TestConsole(state(job()))
    async with app.run_test(size=(80, 24)):
        screen = app.screen
    assert screen.is_mounted and not screen.query("#panels")
    app._screen_stacks["dashboard"] = [screen]
    app.paint()
