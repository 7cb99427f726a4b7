"""The pure parts of a transfer: its progress in words, and how many requests are on the way."""

from __future__ import annotations

import asyncio

from eagle_console.transfer.progress import RATE_SECONDS, Progress
from eagle_console.transfer.window import MOST, START, Window, adjusted


def test_progress_in_words() -> None:
    progress = Progress(2_300_000_000)
    assert progress.words() == "0 B of 2.3 GB, 0%"
    for second in range(11):
        progress.fetched = second * 100_000_000
        progress.mark(float(second))
    assert progress.rate == 100_000_000
    assert progress.words() == "1.0 GB of 2.3 GB, 43%, 100 MB/s, 13 s left (by the rate of the last 10 s)"
    progress.kept = 1_299_999_999  # one byte is missing
    assert ", 99%," in progress.words()


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    progress = Progress(10**12)
    for second in range(200):
        progress.fetched += 10 if second < 100 else 1000
        progress.mark(float(second))
    assert progress.rate == 1000 and len(progress._marks) <= RATE_SECONDS + 2


def test_a_standstill_promises_no_end() -> None:
    progress = Progress(100)
    for second in range(100):
        progress.mark(float(second))
    assert progress.rate == 0 and "left" not in progress.words()


def test_steps_and_an_empty_file() -> None:
    progress = Progress(1000)
    passed = []
    for done in range(0, 1001, 50):
        progress.fetched = done
        if progress.passed_step():
            passed.append(done)
    assert passed == list(range(100, 1001, 100))
    assert Progress(0).words() == "0 B of 0 B, 100%" and not Progress(0).passed_step()


def test_the_window_follows_the_link() -> None:
    assert adjusted(4, 0.1) == 5 and adjusted(MOST, 0.1) == MOST
    assert adjusted(8, 2.0) == 8
    assert adjusted(8, 5.0) == 4 and adjusted(1, 50.0) == 1


async def test_no_more_than_the_window_allows_and_no_one_waits_for_ever() -> None:
    now = 0.0
    window = Window(clock=lambda: now)
    inside, most = 0, 0
    go = asyncio.Event()

    async def one() -> None:
        nonlocal inside, most
        async with window:
            inside += 1
            most = max(most, inside)
            await go.wait()
            inside -= 1

    tasks = [asyncio.create_task(one()) for _ in range(100)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert most == START
    tasks[50].cancel()
    tasks[1].cancel()
    now = 0.5
    go.set()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert most <= MOST and window.limit == MOST and inside == 1  # the cancelled one was inside
