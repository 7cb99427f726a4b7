"""A shared slow value: one read at a time, old values while it hangs, fresh ones after a change."""

from __future__ import annotations

import threading
import time

import pytest

from remote.refreshed import Refreshed


def test_a_young_value_is_given_again_and_an_old_one_read_anew() -> None:
    reads = iter(range(100))
    value = Refreshed(lambda: next(reads), 0.1)
    assert [value.get() for _ in range(3)] == [0, 0, 0]
    time.sleep(0.15)
    assert value.get() == 1


def test_those_who_ask_at_once_share_one_read() -> None:
    reads: list[int] = []
    gate = threading.Event()

    def read() -> int:
        reads.append(1)
        gate.wait(5)
        return len(reads)

    value = Refreshed(read, 10.0)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(value.get())) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    gate.set()
    for thread in threads:
        thread.join(5)
    assert seen == [1] * 5


def test_a_read_that_hangs_holds_back_nobody_who_will_not_wait() -> None:
    gate = threading.Event()
    hang = False

    def read() -> str:
        if hang:
            gate.wait(5)
        return "value"

    value = Refreshed(read, 0.0)
    assert value.get() == "value"
    hang = True
    started = time.monotonic()
    assert [value.latest(0.05) for _ in range(3)] == ["value"] * 3
    assert time.monotonic() - started < 1.0
    gate.set()
    assert Refreshed(lambda: time.sleep(0.3), 0.0).latest(0.01) is None


def test_after_a_change_the_value_is_read_after_it() -> None:
    world = "before"
    gate = threading.Event()
    reading = threading.Event()

    def read() -> str:
        seen = world
        reading.set()
        gate.wait(5)
        return seen

    value = Refreshed(read, 10.0)
    threading.Thread(target=value.get, daemon=True).start()
    assert reading.wait(5)
    world = "after"
    value.expire()
    threading.Timer(0.05, gate.set).start()
    assert value.get() == "after"


def test_errors_reach_those_who_wait_and_pass() -> None:
    broken = True

    def read() -> int:
        if broken:
            raise OSError("no disk")
        return 5

    value = Refreshed(read, 10.0)
    with pytest.raises(OSError, match="no disk"):
        value.get()
    assert value.latest(1.0) is None
    broken = False
    assert value.get() == 5
