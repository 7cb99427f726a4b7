"""Checkpoints, triage, trash and journal: what can be done there, what cannot and why, and what is said of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fixtures import disk_records as records
from textual.pilot import Pilot
from textual.widgets import Button, Input
from tui_fakes import NOW, TestConsole, hello, state, until

from eagle_console.state import LinkState, LinkStatus
from eagle_console.tui.screens.prune_dialog import PruneDialog
from eagle_console.tui.screens.purge_dialog import PurgeDialog
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.table import Table
from remote.protocol.artifacts import CheckpointList, Triage
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.trash import ROLLED_BACK, Journal, TrashList

SIZE = (120, 34)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def opened(app: TestConsole, pilot: Pilot[Any], *keys: str) -> Table:
    await press(pilot, *keys)
    await until(pilot, lambda: app.screen.query(Table) and app.screen.query(Table).last().plain)
    return app.screen.query(Table).last()


def said(app: TestConsole) -> str:
    return "\n".join(note.message for note in app._notifications)


def reasons(app: TestConsole) -> str:
    return app.screen.query_one("#reasons", Lines).plain


async def test_the_table_says_what_each_checkpoint_is_good_for() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "4")
        rows = [line.split() for line in table.plain.splitlines()]
        assert len(rows) == 10
        assert rows[0] == ["9", "9", "10,000", "8.9", "GB", "full", "yes", "yes", "–", "–", "newest", "8d", "keep"]
        assert rows[3][7:] == ["yes", "1.897", "1.50", "best", "8d", "keep"]
        await press(pilot, "tab", "down", "down")
        assert "superseded: epoch 6 has validation loss 1.897" in reasons(app)
        assert "rebuilding costs about 2 min: measured from directory times" in reasons(app)
        assert "not open or mapped by any process, 7 files  (kernel lease, 20:26:35)" in reasons(app)


async def test_another_run_is_asked_for_when_it_is_chosen() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "tab", "down", "down", "space")
        app.fake.session.answers["checkpoints"] = CheckpointList("x", problem="it cannot be read: permission denied")
        await press(pilot, "shift+tab", "down")
        await until(pilot, lambda: "permission denied" in str(app.screen.query(Table).last().border_title))
        asked = [args["dir"] for args in app.fake.session.asked_for("checkpoints")]
        assert asked[-1] == f"{records.WORKSPACE}/output_test"
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert app.fake.session.asked_for("plan_prune")[-1]["dir"].endswith("output_test"), "marks end with their run"


async def test_one_key_prunes_a_run_and_another_undoes_it() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert app.fake.session.asked_for("plan_prune") == [
            {"policy": "recommended", "dir": records.RUN, "level": "whole"}
        ]
        text = app.screen.query_one("#plan-lines").render().plain  # type: ignore[attr-defined]
        goes, stays = text.split("Stays: 3 items")
        assert [number for number in range(10) if f"output_1k/{number}" in goes] == [0, 1, 2, 3, 4, 5, 7]
        assert [number for number in range(10) if f"output_1k/{number}" in stays] == [6, 8, 9]
        assert "the run's own pointer names it" in stays and "superseded" in goes
        assert app.focused is app.screen.query_one("#cancel"), "a habit of pressing enter moves nothing"
        looked = len(app.fake.session.asked_for("checkpoints"))
        await press(pilot, "right", "enter")
        await until(pilot, lambda: app.fake.session.asked_for("prune"))
        (sent,) = app.fake.session.asked_for("prune")
        assert sent == {"plan": "p-1", "fingerprint": "f" * 64, "typed": "", "requested_by": "someone@console"}
        await until(pilot, lambda: "0 B freed yet, 62 GB reclaimable: purge frees them. u undoes" in said(app))
        await until(pilot, lambda: len(app.fake.session.asked_for("checkpoints")) > looked)
        await press(pilot, "u")
        await until(pilot, lambda: "7 items of 7 back in place" in said(app))


async def test_enter_on_the_dialog_cancels() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        await press(pilot, "enter")
        assert not isinstance(app.screen, PruneDialog) and not app.fake.session.asked_for("prune")


async def test_t_plans_the_other_level() -> None:
    app = TestConsole(state(), profile=replace(TestConsole().profile, prune="trim"))
    app.fake.session.answers["plan_prune"] = records.plan("trim")
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert "trim" in app.screen.query_one("#plan-lines").render().plain  # type: ignore[attr-defined]
        app.fake.session.answers["plan_prune"] = records.plan()
        await press(pilot, "t")
        await until(pilot, lambda: len(app.fake.session.asked_for("plan_prune")) == 2)
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert [args["level"] for args in app.fake.session.asked_for("plan_prune")] == ["trim", "whole"]


async def test_a_weaker_proof_names_what_cannot_be_seen_and_wants_a_name() -> None:
    app = TestConsole(state())
    app.fake.session.answers["plan_prune"] = records.plan(confirm="output_1k", unseen="other NFS clients")
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert "other NFS clients" in app.screen.query_one("#plan-summary").render().plain  # type: ignore[attr-defined]
        assert app.screen.query_one("#accept", Button).disabled
        await press(pilot, *"output_2k", "enter")
        assert isinstance(app.screen, PruneDialog)
        app.screen.query_one(Input).value = ""
        await press(pilot, *"output_1k", "enter")
        await until(pilot, lambda: app.fake.session.asked_for("prune"))
        assert app.fake.session.asked_for("prune")[0]["typed"] == "output_1k"


async def test_a_plan_of_nothing_says_why_and_cannot_be_accepted() -> None:
    stays = (records.plan_item("output_1k", refused="a process reads it: pid 4711 (python)"),)
    app = TestConsole(state())
    app.fake.session.answers["plan_prune"] = records.plan(items=(), stays=stays)
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        text = app.screen.query_one("#plan-lines").render().plain  # type: ignore[attr-defined]
        assert "Nothing goes" in text and "pid 4711" in text
        assert app.screen.query_one("#accept", Button).disabled
        assert "nothing goes" in app.screen.query_one("#plan-obstacle").render().plain  # type: ignore[attr-defined]


async def test_what_the_host_refuses_is_told() -> None:
    app = TestConsole(state())
    app.fake.session.answers["prune"] = RequestError(REFUSED, "the plan has expired", "plan again")
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        await press(pilot, "right", "enter")
        await until(pilot, lambda: "the plan has expired. plan again" in said(app))
        items = records.receipt().items
        partly = replace(items[0], state=ROLLED_BACK, problem="it was opened meanwhile")
        app.fake.session.answers["prune"] = records.receipt(items=(partly, *items[1:]))
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        await press(pilot, "right", "enter")
        await until(pilot, lambda: "output_1k/0: rolled back: it was opened meanwhile" in said(app))
        assert "6 items in the trash" in said(app)


async def test_marks_add_up_and_are_what_is_planned() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "4", "T")
        await press(pilot, "space", "space")
        assert "marked: 2 artifacts, 36 GB reclaimable" in app.screen.query_one("#marked", Lines).plain
        table.select(f"{records.WORKSPACE}/data_test")
        await press(pilot, "space")
        assert "data_test stays: tiny reference, used by validation" in said(app)
        assert "marked: 2 artifacts" in app.screen.query_one("#marked", Lines).plain
        table.select("/tmp/core")
        await press(pilot, "space")
        assert "/tmp/core stays: deleted, held open by pid 4711" in said(app)
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert app.fake.session.asked_for("plan_prune") == [
            {"paths": [f"{records.WORKSPACE}/data_1k", f"{records.RUN}/0"], "level": "whole"}
        ]


async def test_without_a_mark_the_row_is_planned() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "4", "T")
        table.select(f"{records.WORKSPACE}/output_test/1")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        assert app.fake.session.asked_for("plan_prune")[0]["paths"] == [f"{records.WORKSPACE}/output_test/1"]


async def test_a_mark_ends_when_its_artifact_is_kept_or_gone() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4", "T")
        await press(pilot, "space")
        app.fake.session.answers["triage"] = Triage(records.WORKSPACE)
        await press(pilot, "r")
        await until(pilot, lambda: "nothing is marked" in app.screen.query_one("#marked", Lines).plain)


async def test_the_filter_works_on_verdicts_too() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "4", "T")
        await press(pilot, "slash", *"torn", "enter")
        assert [line.split()[0] for line in table.plain.splitlines()] == ["torn"]
        await press(pilot, "escape")
        assert len(table.plain.splitlines()) == 16
        await press(pilot, "escape")
        assert app.current_mode == "checkpoints"


@pytest.mark.parametrize("keys", [("4",), ("4", "T"), ("4", "B")])
async def test_what_cannot_be_done_says_why_and_asks_nothing(keys: tuple[str, ...]) -> None:
    app = TestConsole(state(hello=hello(readonly=True)))
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, *keys)
        changing = ("u", "X") if keys[-1] == "B" else ("D", "u")
        await press(pilot, *changing)
        assert said(app).count("read-only") == 2
        app.clear_notifications()
        app.fake.publish(state(link=LinkStatus(LinkState.WAITING, "lost", retry_at=NOW + 9)))
        await pilot.pause()
        await press(pilot, *changing)
        assert said(app).count("no connection to the host") == 2
        assert "DOWN" in str(app.screen.query(Table).first().border_title)
        app.clear_notifications()
        app.fake.session.held["triage"] = app.fake.session.held["trash"] = asyncio.Event()
        app.clock.now += 41
        app.fake.publish(state(received=app.clock.now))
        await pilot.pause()
        app.paint()
        await press(pilot, *changing)
        assert said(app).count("This picture is 41s old: r looks again.") == 2
        table = app.screen.query(Table).first()
        assert "STALE 41s" in str(table.border_title) and table.has_class("-stale")
        asked = {op for op, _, _ in app.fake.session.asked}
        assert not asked & {"plan_prune", "prune", "undo", "purge", "pin"}


async def test_the_trash_counts_down_and_brings_back_the_row() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "4", "B")
        assert "7 d 0 h" in table.plain.splitlines()[0] and "expired" in table.plain.splitlines()[1]
        assert "0 B freed yet, 62 GB reclaimable: purge frees them" in reasons(app)
        await press(pilot, "down", "u")
        await until(pilot, lambda: app.fake.session.asked_for("undo"))
        assert app.fake.session.asked_for("undo")[0]["receipt"] == "20260520-101500-02ab"


async def test_a_purge_wants_its_size_typed_and_says_what_it_freed() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "4", "B")
        await press(pilot, "X")
        assert isinstance(app.screen, PurgeDialog) and app.screen.query_one("#accept", Button).disabled
        await press(pilot, "enter", "y", "enter")
        assert isinstance(app.screen, PurgeDialog)
        app.screen.query_one(Input).value = ""
        await press(pilot, "6", "2", "space", "G", "B", "enter")
        await until(pilot, lambda: app.fake.session.asked_for("purge"))
        assert app.fake.session.asked_for("purge")[0]["receipt"] == "20260528-203000-7c1e"
        await until(pilot, lambda: "planned 62 GB, unlinked 62 GB, file system +62 GB" in said(app))


async def test_an_empty_trash_says_so() -> None:
    app = TestConsole(state())
    app.fake.session.answers["trash"] = TrashList()
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "4", "B")
        await until(pilot, lambda: "The trash is empty." in reasons(app))
        await press(pilot, "u", "X")
        assert said(app).count("The trash is empty") == 2
        await press(pilot, "escape", "u")
        await until(pilot, lambda: "nothing in the trash to bring back" in said(app))


async def test_the_journal_shows_whether_it_is_as_written() -> None:
    app = TestConsole(state())
    async with app.run_test(size=SIZE) as pilot:
        table = await opened(app, pilot, "5")
        assert "its chain holds" in str(table.border_title)
        assert "validation loss 2.913" in reasons(app) and "output_1k/7" in reasons(app)
        first, second = records.journal().entries
        app.fake.session.answers["journal"] = Journal((replace(first, text="nothing happened", sound=False), second))
        await press(pilot, "r")
        await until(pilot, lambda: "NOT AS IN THE COPY HERE" in str(table.border_title))
        assert "entry 2 differs from the copy" in reasons(app)
        assert "NOT AS WRITTEN: nothing happened" in table.plain
        app.fake.session.answers["journal"] = Journal(records.journal().entries, broken=1)
        await press(pilot, "r")
        await until(pilot, lambda: "CHAIN BROKEN AT ENTRY 1" in str(table.border_title))


async def test_an_agent_that_knows_none_of_it_is_told_of() -> None:
    app = TestConsole(state())
    for op in records.answers():
        app.fake.session.answers[op] = None
    async with app.run_test(size=SIZE) as pilot:
        for keys in (("4",), ("T",), ("B",), ("5",)):
            await press(pilot, *keys)
            await until(pilot, lambda: "does not know" in str(app.screen.query(Table).first().border_title))


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 60)])
async def test_the_answers_are_in_sight_at_every_size(size: tuple[int, int]) -> None:
    app = TestConsole(state())
    app.fake.session.answers["plan_prune"] = records.plan(confirm="output_1k", unseen="other NFS clients " * 5)
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot, "4")
        await press(pilot, "D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        await pilot.pause()
        for name in ("#cancel", "#accept", "#answer"):
            region = app.screen.query_one(name).region
            assert region.height == 1 and 0 < region.y < size[1] - 1 and region.right <= size[0], (name, region)
