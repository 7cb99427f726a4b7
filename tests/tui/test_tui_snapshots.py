"""Pictures of the screens at the smallest and the reference size; ``--snapshot-update`` renews them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from tui_fakes import (
    NOW,
    TestConsole,
    chunk,
    done_check,
    failed_job,
    filesystem,
    gpus,
    hello,
    host_sample,
    job,
    ready_job,
    stage_list,
    state,
)

from eagle_console.state import HostKeyQuestion, HostState, LinkState, LinkStatus, Timed
from eagle_console.tui.screens.stage_form import StageForm
from eagle_console.tui.widgets.log_view import LogView
from remote.protocol.disk import DiskSnapshot
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.jobs import JobList

SIZES = {"80x24": (80, 24), "120x34": (120, 34)}

LOG = (
    "INFO 05-28 20:30:01 [api_server.py:1] vLLM API server version 0.22.0",
    *[
        f"(EngineCore pid=4123) INFO 05-28 20:30:{n:02d} [core.py:{n}] loading [/data/models/x] part {n}"
        for n in range(40)
    ],
    *[f"Loading safetensors checkpoint shards:  {n}% Completed | {n}/64 [00:01<00:03]" for n in range(20)],
    "WARNING 05-28 20:31:00 [x.py:2] the page cache is cold",
    "ERROR 05-28 20:31:01 [y.py:3] CUDA out of memory",
    "Traceback (most recent call last):",
    "a long line " * 30,
)


def empty() -> HostState:
    message = "The NVIDIA library libnvidia-ml.so.1 is not on this host."
    return HostState(
        name="gpu-box",
        link=LinkStatus(LinkState.LIVE),
        hello=hello(),
        gpus=Timed(GpuSnapshot("no_library", message=message), NOW),
        host=Timed(host_sample(), NOW),
        jobs=Timed(JobList(), NOW),
        disk=Timed(DiskSnapshot("/data/eagle3-train", (), filesystem(), scanning=True, files_seen=1_234), NOW),
    )


STATES: dict[str, Callable[[], HostState]] = {
    "loading": lambda: state(job(), done_check()),
    "ready": lambda: state(ready_job(), done_check()),
    "failed": lambda: state(failed_job(), done_check()),
    "empty": empty,
    "lost-and-stale": lambda: state(failed_job(), received=NOW - 12, gpus=Timed(gpus(lost=True), NOW)),
    "down": lambda: state(
        job(), received=NOW - 40, link=LinkStatus(LinkState.WAITING, "gpu-box: no answer for 15 s", "", 2, NOW + 9)
    ),
    "readonly-replay": lambda: state(job(simulated=True), hello=hello(readonly=True, simulated=True)),
    "first-connect": lambda: HostState("gpu-box", LinkStatus(LinkState.CONNECTING, attempt=1)),
}


async def settle(pilot: Pilot[Any], rounds: int = 3) -> None:
    for _ in range(rounds):
        await pilot.pause()


async def until(pilot: Pilot[Any], holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            await settle(pilot)
            return
        await pilot.pause(0.01)
    raise AssertionError("the expected state never came")


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("name", STATES)
def test_dashboard(snap_compare: Any, name: str, size: tuple[int, int]) -> None:
    assert snap_compare(TestConsole(STATES[name]()), terminal_size=size, run_before=settle)


def test_dashboard_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(TestConsole(STATES["lost-and-stale"]()), terminal_size=(120, 34), run_before=settle)


def test_dashboard_in_ascii(snap_compare: Any) -> None:
    app = TestConsole(STATES["loading"](), ascii=True)
    assert snap_compare(app, terminal_size=(120, 34), run_before=settle)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_stages(snap_compare: Any, size: tuple[int, int]) -> None:
    app = TestConsole(state(ready_job(), replace(failed_job(), id="serve-older")))
    app.fake.session.answers["stages"] = stage_list(blocked=True)

    async def show(pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        await until(pilot, lambda: "serve" in app.screen.query_one("#stage-table").plain)  # type: ignore[attr-defined]
        await pilot.press("j")
        await settle(pilot)

    assert snap_compare(app, terminal_size=size, run_before=show)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_logs(snap_compare: Any, size: tuple[int, int]) -> None:
    app = TestConsole(state(job()))
    app.fake.session.log.put_nowait(chunk(*LOG))

    async def show(pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: bool(app.screen.query_one(LogView).buffer.shown))
        app.paint()
        await settle(pilot)

    assert snap_compare(app, terminal_size=size, run_before=show)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_form(snap_compare: Any, size: tuple[int, int]) -> None:
    app = TestConsole(state())
    app.fake.session.answers["stages"] = stage_list(blocked=True)

    async def show(pilot: Pilot[Any]) -> None:
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, StageForm) and app.screen._plan is not None)

    assert snap_compare(app, terminal_size=size, run_before=show)


@pytest.mark.parametrize(
    ("name", "keys"), [("gpus", ["1"]), ("load", ["6"]), ("help", ["question_mark"]), ("stop", ["x"]), ("quit", ["q"])]
)
def test_other(snap_compare: Any, name: str, keys: list[str]) -> None:
    async def show(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press(*keys)
        await settle(pilot)

    assert snap_compare(TestConsole(state(job(), done_check())), terminal_size=(120, 34), run_before=show)


def test_host_key(snap_compare: Any) -> None:
    fingerprint = "SHA256:0n7R2Xq5C8YtBv1aPzKdEwGmHjLs4uT6oNiVfQxZ3rk"
    question = HostKeyQuestion("gpu-box.example.org", 2222, "ssh-ed25519", fingerprint, "")
    app = TestConsole()

    async def show(pilot: Pilot[Any]) -> None:
        app.fake.publish(HostState("gpu-box", LinkStatus(LinkState.UNKNOWN_HOST_KEY, question=question)))
        await settle(pilot)

    assert snap_compare(app, terminal_size=(80, 24), run_before=show)


def test_failed_link(snap_compare: Any) -> None:
    link = LinkStatus(LinkState.FAILED, "gpu-box refuses the user root: no key was accepted", "Load your key: ssh-add")
    assert snap_compare(TestConsole(HostState("gpu-box", link)), terminal_size=(80, 24), run_before=settle)
