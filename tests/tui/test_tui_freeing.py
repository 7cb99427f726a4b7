"""Freeing GPUs from the screen: what is asked of the host, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static
from tui_fakes import GIB, TestConsole, hello, state, until

from eagle_console.state import HostState
from eagle_console.tui.screens.free_dialog import FreeDialog, FreeingDialog
from remote.protocol import freeing
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.freeing import (
    FreedGpu,
    FreeReport,
    GpuHolder,
    GpuHolders,
    GpuMemory,
    GpuShare,
    HolderOutcome,
)
from remote.protocol.jobs import ProcessId

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}


def holder(pid: int, gpus: tuple[int, ...] = (0,), **more: object) -> GpuHolder:
    shares = tuple(GpuShare(gpu, 80 * GIB) for gpu in gpus)
    base = GpuHolder(
        pid, shares, ProcessId(pid, pid * 10, "b"), name="python", user="root", command=f"python {pid}.py", seconds=600
    )
    return replace(base, **more)  # type: ignore[arg-type]


ORPHAN = holder(
    4_123, tuple(range(8)), command="VLLM::EngineCore", orphan=True, program="engine Kimi-K2.5", seconds=5_000
)
JOB = holder(
    4_200, (1,), job="serve-20260528-203000-1a2b", refused="it belongs to the running job serve-20260528-203000-1a2b",
    force="serve-20260528-203000-1a2b",
)  # fmt: skip
FOREIGN = holder(991, (2, 3), user="bob", refused="it belongs to bob", force="bob", command="python [/red] train.py")
FOUND = GpuHolders(
    (ORPHAN, JOB, FOREIGN),
    tuple(
        GpuMemory(i, "RTX", 80 * GIB, 96 * GIB, "no process here holds it: another container may" if i == 7 else "")
        for i in range(8)
    ),
)

RUNNING = FreeReport("f1", True, "ending", (), (FreedGpu(0, 80 * GIB, 80 * GIB, False),))
DONE = FreeReport(
    "f1", False, "", (HolderOutcome(4_123, freeing.KILLED, note="SIGTERM did not end it"),),
    tuple(FreedGpu(i, 80 * GIB, 0, True) for i in range(8)), 27.9,
)  # fmt: skip
LEFT = FreeReport(
    "f1", False, "", (HolderOutcome(4_123, freeing.SURVIVED),),
    (FreedGpu(0, 80 * GIB, 80 * GIB, False, "a process hangs in the driver"),), 60.0,
)  # fmt: skip


def console(
    found: GpuHolders | Exception = FOUND, report: FreeReport = DONE, base: HostState | None = None
) -> TestConsole:
    app = TestConsole(base or state())
    app.fake.session.answers.update(gpu_holders=found, free_gpus=RUNNING, free_report=report)
    return app


async def opened(pilot: Pilot[None], app: TestConsole) -> None:
    await pilot.press("1", "D")
    await until(pilot, lambda: isinstance(app.screen, FreeDialog))
    await pilot.pause()


def text(app: TestConsole, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


def over(app: TestConsole) -> bool:
    return isinstance(app.screen, FreeingDialog) and "done after" in text(app, "#free-hint")


async def test_what_nothing_protects_is_ended_and_the_outcome_is_shown() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(pilot, app)
        lines = text(app, "#free-lines")
        assert "[x]     4123" in lines and "orphan: its API server has died" in lines
        assert " –      4200" in lines and "it belongs to bob; type bob to take it" in lines and "[/red]" in lines
        assert "GPU 7: 80.0 GiB without a process" in lines
        await pilot.press("y")
        await until(
            pilot, lambda: isinstance(app.screen, FreeingDialog) and "done after 27.9 s" in text(app, "#free-hint")
        )
        assert "4123  killed: SIGTERM did not end it" in text(app, "#free-lines")
        assert "GPU 7    80.0 GiB ->    0.0 GiB  free" in text(app, "#free-lines")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, FreeingDialog))
    [asked] = app.fake.session.asked_for("free_gpus")
    assert asked == {
        "targets": [{"pid": 4_123, "start_ticks": 41_230}], "force": [], "requested_by": "someone@console"
    }  # fmt: skip
    assert app.fake.session.asked_for("free_report") == [{"id": "f1"}]
    assert any("The GPUs are free after 27.9 s" in note.message for note in app._notifications)


@pytest.mark.parametrize(
    "keys", [("escape",), ("n",), ("enter",), ("space", "y", "escape"), ("down", "space", "up", "space", "y", "n")]
)
async def test_whoever_leaves_or_marks_nothing_ends_nothing(keys: list[str]) -> None:
    """A protected row cannot be marked with space."""
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(pilot, app)
        await pilot.press(*keys)
        await until(pilot, lambda: not isinstance(app.screen, FreeDialog))
    assert not app.fake.session.asked_for("free_gpus")


async def test_what_is_protected_is_taken_once_its_name_is_typed() -> None:
    app = console()
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(pilot, app)
        await pilot.press("space")  # the orphan stays
        await pilot.click(Input)
        await pilot.press(*"bo", "enter")
        assert "nothing here is protected by the name" in text(app, "#free-hint")
        await pilot.press("b", "enter", "y")
        await until(pilot, lambda: bool(app.fake.session.asked_for("free_gpus")))
    [asked] = app.fake.session.asked_for("free_gpus")
    assert [target["pid"] for target in asked["targets"]] == [991] and asked["force"] == ["bob"]


async def test_what_is_left_is_explained() -> None:
    app = console(report=LEFT)
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(pilot, app)
        await pilot.press("y")
        await until(pilot, lambda: over(app))
        assert "a process hangs in the driver" in text(app, "#free-lines")
        await until(pilot, lambda: any("Not everything came free" in note.message for note in app._notifications))


async def test_the_report_goes_on_without_the_dialog() -> None:
    app = console(report=RUNNING)
    async with app.run_test(size=(120, 34)) as pilot:
        await opened(pilot, app)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, FreeingDialog))
        assert "ending the processes" in text(app, "#free-lines")
        await pilot.press("escape")
        app.fake.session.answers["free_report"] = DONE
        await until(pilot, lambda: any("The GPUs are free" in note.message for note in app._notifications))


@pytest.mark.parametrize(
    "found, said",
    [
        (GpuHolders(simulated=True), "simulated"),
        (GpuHolders(problem="NVML hangs"), "NVML hangs"),
        (RequestError(REFUSED, "an administrator said no"), "an administrator said no"),
    ],
)
async def test_why_it_cannot_be_done_is_said(found: GpuHolders | Exception, said: str) -> None:
    app = console(found)
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("1", "D")
        await until(pilot, lambda: any(said in note.message for note in app._notifications))
        assert not isinstance(app.screen, FreeDialog)


async def test_a_read_only_host_is_not_asked() -> None:
    app = console(base=state(hello=hello(readonly=True, readonly_reason="agent.toml")))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("1", "D")
        await until(pilot, lambda: any("read-only" in note.message for note in app._notifications))
    assert not app.fake.session.asked_for("gpu_holders")


@pytest.mark.parametrize("size", SIZES)
def test_picture(size: str, snap_compare: Callable[..., bool]) -> None:
    async def press(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TestConsole)
        await opened(pilot, app)

    assert snap_compare(console(), terminal_size=SIZES[size], run_before=press)


def test_picture_of_the_end(snap_compare: Callable[..., bool]) -> None:
    async def press(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TestConsole)
        await opened(pilot, app)
        await pilot.press("y")
        await until(pilot, lambda: over(app))

    assert snap_compare(console(), terminal_size=(120, 34), run_before=press)
