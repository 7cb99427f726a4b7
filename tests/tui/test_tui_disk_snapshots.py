"""Pictures of the screens and dialogs about the disk; ``--snapshot-update`` renews them."""

from __future__ import annotations

from typing import Any

import pytest
from fixtures import disk_records as records
from textual.pilot import Pilot
from tui_fakes import NOW, TestConsole, job, state

from eagle_console.state import LinkState, LinkStatus

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}
SCREENS = {
    "checkpoints": ("4", "tab", "down", "down", "space"),
    "triage": ("4", "T", "space", "space"),
    "trash": ("4", "B"),
    "journal": ("5",),
    "prune": ("4", "D"),
    "purge": ("4", "B", "X"),
}


def showing(*keys: str) -> Any:
    """Presses keys, and waits for the answers that they ask for."""

    async def run(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            for _ in range(5):
                await pilot.pause()

    return run


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("name", SCREENS)
def test_screen(snap_compare: Any, name: str, size: tuple[int, int]) -> None:
    assert snap_compare(TestConsole(state(job())), terminal_size=size, run_before=showing(*SCREENS[name]))


@pytest.mark.parametrize("name", ["checkpoints", "triage", "prune", "purge"])
def test_without_colour(snap_compare: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(TestConsole(state(job())), terminal_size=(80, 24), run_before=showing(*SCREENS[name]))


@pytest.mark.parametrize("size", [(80, 24), (120, 34)], ids=["80x24", "120x34"])
def test_a_weaker_proof_looks_different(snap_compare: Any, size: tuple[int, int]) -> None:
    app = TestConsole(state(job()))
    unseen = "processes on other clients of this NFS export"
    app.fake.session.answers["plan_prune"] = records.plan(confirm="output_1k", unseen=unseen)
    assert snap_compare(app, terminal_size=size, run_before=showing("4", "D"))


def test_lost_link(snap_compare: Any) -> None:
    app = TestConsole(state(job()))

    async def show(pilot: Pilot[Any]) -> None:
        await showing("4", "T")(pilot)
        app.fake.publish(state(job(), link=LinkStatus(LinkState.WAITING, "gpu-box: no answer", "", 2, NOW + 9)))
        await pilot.pause()
        await pilot.press("D")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 34), run_before=show)
