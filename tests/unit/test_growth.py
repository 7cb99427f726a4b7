from __future__ import annotations

import pytest

from remote.disk.growth import WINDOW_SECONDS, Growth, seconds_until


def test_a_rate_needs_a_minute() -> None:
    growth = Growth()
    growth.note("a", 0.0, 100)
    growth.note("a", 59.0, 200)
    assert growth.rate("a") is None and growth.rate("b") is None
    growth.note("a", 60.0, 160)
    assert growth.rate("a") == pytest.approx(3600.0)


def test_what_shrinks_has_a_negative_rate_and_never_fills_the_disk() -> None:
    growth = Growth()
    growth.note("a", 0.0, 1000)
    growth.note("a", 3600.0, 400)
    rate = growth.rate("a")
    assert rate == pytest.approx(-600.0)
    assert seconds_until(10_000, rate) is None and seconds_until(10_000, None) is None
    assert seconds_until(7200, 3600.0) == pytest.approx(7200.0)


def test_only_the_last_hour_counts_and_many_measurements_cost_little() -> None:
    growth = Growth()
    for second in range(0, 4 * 3600, 5):
        growth.note("a", float(second), second if second < 2 * 3600 else 7200)
    assert growth.rate("a") == pytest.approx(0.0)
    assert len(growth._points["a"]) < WINDOW_SECONDS / 20


def test_the_others_are_forgotten() -> None:
    growth = Growth()
    for name in ("a", "b"):
        growth.note(name, 0.0, 0)
        growth.note(name, 120.0, 10)
    growth.keep(["b"])
    assert growth.rate("a") is None and growth.rate("b") is not None
