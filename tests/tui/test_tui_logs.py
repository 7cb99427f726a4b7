"""Reading a log: search in context, from one problem to the next, copying, and a flood at a bounded cost."""

from __future__ import annotations

import time
from typing import Any

import pytest
from textual.pilot import Pilot
from tui_fakes import TestConsole, chunk, job, state, until

from eagle_console.tui.log_buffer import MAX_LINES, LogBuffer
from eagle_console.tui.screens.logs import LogsScreen
from eagle_console.tui.widgets.filter_input import FilterInput
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.log_view import LogView

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "200x60": (200, 60)}

LINES = tuple(
    "ERROR 05-28 20:31:01 [y.py:3] CUDA out of memory" if n in (60, 61, 150)
    else f"WARNING 05-28 20:31:00 [x.py:2] cold cache {n}" if n == 100
    else f"INFO 05-28 20:30:{n % 60:02d} [core.py:{n}] shard {n} of [/data/models/x]" if n % 20 == 0
    else f"INFO 05-28 20:30:{n % 60:02d} [core.py:{n}] step {n}"
    for n in range(200)
)  # fmt: skip


def console(*lines: str) -> TestConsole:
    app = TestConsole(state(job()))
    app.fake.session.log.put_nowait(chunk(*(lines or LINES)))
    return app


async def opened(app: TestConsole, pilot: Pilot[Any]) -> LogView:
    await pilot.press("3")
    await until(pilot, lambda: isinstance(app.screen, LogsScreen) and bool(app.screen.query_one(LogView).buffer.shown))
    return app.screen.query_one(LogView)


def marked(log: LogView) -> str:
    assert log._marked is not None
    return log.buffer.shown[log._marked]


def head(app: TestConsole) -> str:
    app.paint()
    return app.screen.query_one("#log-head", Lines).plain


async def typed(pilot: Pilot[Any], text: str) -> None:
    await pilot.press("slash", *("space" if sign == " " else sign for sign in text), "enter")
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_picture_of_a_search(snap_compare: Any, size: tuple[int, int]) -> None:
    app = console()

    async def show(pilot: Pilot[Any]) -> None:
        await opened(app, pilot)
        await typed(pilot, "shard")
        await pilot.press("n")
        await pilot.press("n")
        app.paint()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=show)


def test_picture_of_a_problem_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = console()

    async def show(pilot: Pilot[Any]) -> None:
        await opened(app, pilot)
        await pilot.press("comma")
        app.paint()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 34), run_before=show)


async def test_n_shows_what_was_filtered_in_its_context_and_goes_round() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        await pilot.press("home")
        await typed(pilot, "shard")
        assert len(log.buffer.shown) == 8  # ten, of which 60 and 100 are something else
        await pilot.press("n")
        assert len(log.buffer.shown) == 200 and not app.screen.query_one(FilterInput).display
        first = marked(log)
        assert first == LINES[0] and not log.following  # the first one in sight of those that were filtered
        await pilot.press("n")
        assert marked(log) != first and "shard" in marked(log)
        await pilot.press("N")
        assert marked(log) == first
        seen = []
        for _ in range(8):
            await pilot.press("n")
            seen.append(marked(log))
        assert len(set(seen)) == 8 and seen[-1] == first  # in a circle
        assert "n: shard" in head(app)


async def test_escape_ends_the_search_before_it_leaves() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        await typed(pilot, "shard")
        await pilot.press("n", "escape")
        assert log.searched == "" and app.current_mode == "logs"
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "dashboard")


@pytest.mark.parametrize(("text", "words"), [("", "Type a text with /"), ("nothing like it", "No line with")])
async def test_a_search_without_a_find_says_so(text: str, words: str) -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(app, pilot)
        if text:
            await typed(pilot, text)
        await pilot.press("n")
        await until(pilot, lambda: any(words in notice.message for notice in app._notifications))


async def test_a_searched_text_is_seen_in_the_line_and_is_never_markup() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        log.search("[/DATA")
        assert log.next_match(1)
        await pilot.pause()
        strips = [log.render_line(y) for y in range(log.size.height)]
        found = [segment for strip in strips for segment in strip if segment.text == "[/data"]
        plain = [segment for strip in strips for segment in strip if segment.text.startswith("INFO")]
        assert found and plain and found[0].style != plain[0].style
        assert found[0].style is not None and found[0].style.underline


async def test_points_and_commas_go_from_problem_to_problem() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        await pilot.press("home")
        await pilot.pause()
        seen = []
        for key in ("full_stop", "full_stop", "full_stop", "comma"):
            await pilot.press(key)
            seen.append(log._marked)
        assert seen == [60, 100, 150, 100]  # the second of two neighbours is the same problem
        await pilot.press("full_stop", "full_stop")
        await until(pilot, lambda: any("No further" in notice.message for notice in app._notifications))
        assert log._marked == 150


async def test_y_copies_the_marked_line_and_else_what_is_in_sight() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        await pilot.press("y")
        assert app.clipboard.splitlines() == list(LINES[-log.size.height :])
        await pilot.press("home", "full_stop", "y")
        assert app.clipboard == LINES[60]
    app = TestConsole(state())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3", "y")
        await until(pilot, lambda: any("no line to copy" in notice.message for notice in app._notifications))


async def test_wrapped_lines_are_copied_whole() -> None:
    app = console(*("x" * 200 + str(n) for n in range(30)))
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        await pilot.press("w", "home")
        await pilot.pause()
        await pilot.press("y")
        assert all(len(line) > 200 for line in app.clipboard.splitlines())
        assert log.wrapped and len(app.clipboard.splitlines()) <= log.size.height // 2


async def test_what_is_read_stays_in_sight_while_old_lines_are_dropped() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        log = await opened(app, pilot)
        log.append(f"line {n}" for n in range(MAX_LINES - 300))
        log.jump_to(10_000)
        await pilot.pause()
        line, place = log.buffer.shown[10_000], log.render_line(5).text
        log.append(f"more {n}" for n in range(3_000))
        await pilot.pause()
        assert log.buffer.dropped > 0
        assert marked(log) == line and log.render_line(5).text == place
        log.append(f"flood {n}" for n in range(MAX_LINES))
        assert log._marked is None  # the line itself is gone


def test_problems_and_finds_of_the_buffer() -> None:
    buffer = LogBuffer()
    buffer.append(["a", "WARNING b", "ERROR c", "d", "ERROR e"])
    assert [buffer.problem(n) for n in range(6)] == [1, 1, 4, 4, 4, None]
    assert [buffer.problem(n, -1) for n in (9, 3, 0, -1)] == [4, 1, None, None]
    assert (buffer.find("D", 0), buffer.find("d", 4), buffer.find("d", 9, -1)) == (3, None, 3)
    assert buffer.find("!error", 2) == 3


async def test_a_flood_of_2000_lines_a_second_costs_little() -> None:
    """Ten seconds of it, in the pieces in which the link brings them; processor time, so that others do not count."""
    app = console()
    line = "(Worker_TP3 pid=4711) INFO 05-28 20:30:01 [gpu_model_runner.py:1234] step %d of a training that says much"
    async with app.run_test(size=(120, 34)) as pilot:
        log = await opened(app, pilot)
        await pilot.pause()
        begun = time.process_time()
        for piece in range(40):
            app.fake.session.log.put_nowait(chunk(*(line % (piece * 500 + n) for n in range(500))))
            await until(pilot, lambda: log.buffer.total + log.buffer.dropped >= 200 + (piece + 1) * 500)  # noqa: B023
            app.paint()
        spent = time.process_time() - begun
        assert log.buffer.total <= MAX_LINES
        assert log.render_line(log.size.height - 1).text.startswith("(Worker_TP3")
    assert spent < 3.0, f"{spent:.2f} s of a core for ten seconds of log"
