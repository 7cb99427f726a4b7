"""Times as people write them, and their place in a log: the host's clock, jumps of it, and indexes that lie."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.jobs import logreading
from remote.jobs.since import offset_since, parse_index, parse_time


@pytest.fixture(autouse=True)
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # the host's, half an hour off like no other
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


NOW_TEXT = "2026-11-30 12:00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", "2026-11-30 11:59:30"),
        ("10m", "2026-11-30 11:50:00"),
        ("10 min", "2026-11-30 11:50:00"),
        ("1.5h", "2026-11-30 10:30:00"),
        ("2d", "2026-11-28 12:00:00"),
        ("11:05", "2026-11-30 11:05:00"),
        ("11:05:09", "2026-11-30 11:05:09"),
        ("14:05", "2026-11-29 14:05:00"),  # the last one that has been
        ("2026-11-30 09:05", "2026-11-30 09:05:00"),
        ("2026-11-30T09:05:01", "2026-11-30 09:05:01"),
        ("2026-11-29", "2026-11-29 00:00:00"),
    ],
)
def test_times(text: str, expected: str) -> None:
    assert parse_time(text, at(NOW_TEXT)) == at(expected)


def test_seconds_since_the_epoch() -> None:
    assert parse_time("1780000000", 0.0) == 1_780_000_000.0
    assert parse_time("1780000000.25", 0.0) == 1_780_000_000.25


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m", "25:00", "2026-13-01", "10m ago", "nan", "1e9", "9" * 400])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text, at(NOW_TEXT))


INDEX = [(100.0, 10), (101.0, 20), (110.0, 30)]


@pytest.mark.parametrize(
    ("wall", "offset"),
    [(0.0, 0), (100.0, 0), (100.5, 10), (101.0, 10), (105.0, 20), (110.0, 20), (110.5, 30), (1e12, 30)],
)
def test_offsets(wall: float, offset: int) -> None:
    assert offset_since(INDEX, wall) == offset


def test_a_clock_that_was_set_back_loses_no_line() -> None:
    jumped = [(100.0, 10), (200.0, 20), (110.0, 30), (120.0, 40), (210.0, 50)]
    assert offset_since(jumped, 115.0) == 10  # from the 200 on: written at 120 and at 210 is behind it
    assert offset_since(jumped, 205.0) == 40
    assert offset_since(jumped, 90.0) == 0


def test_an_index_of_anything() -> None:
    data = b'[1.5,10]\n[2,20]\nnull\n{}\n[3]\n[4,"x"]\n[5,-1]\n[1e999,5]\n' + b"[" * 9000 + b"\n[6,60]\n[7,7"
    entries = parse_index(data)
    assert entries[:2] == [(1.5, 10), (2.0, 20)] and entries[-1] == (6.0, 60)
    assert all(size >= 0 for _, size in entries)
    assert offset_since([], 5.0) == 0


def test_a_place_in_a_line_is_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    log.write_bytes(b"one\ntwo\rthree\n" + b"x" * 100_000)
    assert [logreading.line_start(str(log), offset) for offset in (0, 2, 4, 6, 8, 11, 14)] == [0, 0, 4, 4, 8, 8, 14]
    assert logreading.line_start(str(log), 100_000) == 100_000  # a line that never ends
    assert logreading.line_start(str(log), 10**9) == 10**9  # behind its end: what is read there is nothing
    assert logreading.line_start(str(tmp_path / "none"), 5) == 0
