from __future__ import annotations

import datetime

import pytest

from eagle_console import format as fmt


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "–"), (0, "0.0 GiB"), (1 << 30, "1.0 GiB"), (77_415_907_328, "72.1 GiB"), (1 << 40, "1024.0 GiB")],
)
def test_memory_is_in_gib(size: int | None, text: str) -> None:
    assert fmt.gib(size) == text


def test_memory_used_of_total() -> None:
    assert fmt.gib_of(1 << 30, 3 << 29) == "1.0/1.5 GiB"
    assert fmt.gib_of(None, 1 << 30) == "–/1.0 GiB"
    assert fmt.gib_of(None, None) == "–"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (213_400_000, "213 MB"),
        (999_600_000, "1.0 GB"),
        (9_949_999_999, "9.9 GB"),
        (9_960_000_000, "10 GB"),
        (89_123_456_789, "89 GB"),
        (1_234_567_890_123, "1.2 TB"),
        (5 * 10**18, "5000 PB"),
    ],
)
def test_disk_is_in_decimal_units(size: int | None, text: str) -> None:
    assert fmt.gb(size) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(None, 0, "–"), (0, 0, "0%"), (61.4, 0, "61%"), (99.7, 0, "99%"), (99.96, 1, "99.9%"), (100, 0, "100%")],
)
def test_percent_reaches_100_only_at_the_end(value: float | None, decimals: int, text: str) -> None:
    assert fmt.percent(value, decimals) == text


@pytest.mark.parametrize(
    ("seconds", "text", "words"),
    [
        (None, "–", "–"),
        (-1, "0s", "0 s"),
        (3.9, "3s", "3 s"),
        (60, "1:00", "1 min"),
        (492, "8:12", "8 min"),
        (7692, "2:08:12", "2 h 8 min"),
        (266_880, "3d 02:08", "3 d 2 h"),
    ],
)
def test_durations(seconds: float | None, text: str, words: str) -> None:
    assert fmt.duration(seconds) == text
    assert fmt.duration_in_words(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.42, "0.4s"), (9.96, "10s"), (41, "41s"), (130, "2min"), (7300, "2h"), (200_000, "2d")],
)
def test_age(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


@pytest.mark.parametrize(
    ("done", "total", "unit", "text"),
    [
        (39, 64, "shards", "39/64 shards"),
        (None, None, "shards", ""),
        (3_912, 10_000, "", "3,912/10,000"),
        (12.5, None, "GiB", "12.5 GiB"),
        (329e9, 540e9, "bytes", "329 GB/540 GB"),
        (None, 64, "shards", "–/64 shards"),
    ],
)
def test_counted_progress(done: float | None, total: float | None, unit: str, text: str) -> None:
    assert fmt.done_of(done, total, unit) == text


def test_plural() -> None:
    assert fmt.plural(1, "job") == "1 job"
    assert fmt.plural(2, "job") == "2 jobs"


def test_a_moment_of_another_day_is_a_day() -> None:
    now = datetime.datetime(2026, 11, 30, 21, 45).timestamp()
    assert fmt.moment(now - 3600, now) == "20:45"
    assert fmt.moment(datetime.datetime(2026, 11, 28, 21, 30).timestamp(), now) == "Nov 28"
    assert fmt.moment(None, now) == "–"
