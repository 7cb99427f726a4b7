"""Predicted time to ready: the backtest's limits on real starts, other storage tiers, and what must always hold."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.protocol.progress import Eta, Phase
from remote.watch import backtest, eta, pace, shards, spans, timelines
from remote.watch.eta import Seen
from remote.watch.history import SPANS, PastStart, StartKey
from remote.watch.pace import Reading
from remote.watch.spans import Begun
from remote.watch.tiers import other_tier
from remote.watch.timelines import Timeline

FILE = Path(__file__).parents[1] / "fixtures" / "eta_timelines.json"
STARTS = timelines.parse(FILE.read_text())
KEY = StartKey(model="/models/m", tensor_parallel=4, version="0.32.0")


def past_start(weights: float, tail: float = 100.0, key: StartKey = KEY, size: float = 4e11) -> PastStart:
    seconds = dict(zip(SPANS, (50.0, weights, 0.1 * tail, 0.7 * tail, 0.15 * tail, 0.05 * tail)))
    return PastStart(key, seconds, size)


def in_weights(elapsed: float, share: float, size: float = 4e11) -> Seen:
    reading = Reading(((share, elapsed),))
    return Seen(KEY, 50.0 + elapsed, (Begun("start", 0.0), Begun("weights", 50.0)), size, reading)


def medians(starts: Sequence[Timeline], first: int = 0) -> tuple[dict[str, list[float]], float]:
    table = backtest.summary(backtest.replay(starts, first))
    return {name: list(table[name]["median"].values()) for name in backtest.METHODS}, table["ours"]["coverage"]


def test_backtest_on_real_starts_keeps_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest.main([str(FILE), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert set(table) == {"ours", "reference", "tqdm", "runs"} and table["runs"] == 22
    assert set(table["ours"]) == {"median", "p90", "coverage", "width"}
    for point in ("25", "50", "75"):
        assert table["ours"]["median"][point] <= 0.7 * table["reference"]["median"][point], point
        assert table["ours"]["median"][point] < table["tqdm"]["median"][point], point
    assert table["ours"]["coverage"] >= 0.8
    assert table["ours"]["width"] < 50


def test_backtest_prints_starts_without_history_of_their_key_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest.main([str(FILE)]) == 0
    text = capsys.readouterr().out
    assert "All starts (22)" in text and "same key (17)" in text and "Without one (5)" in text


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"runs": [1]}', '{"runs": []}', '{"runs": [{"shards": 0}]}'])
def test_backtest_of_another_file_says_so(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text(content)
    assert backtest.main([str(tmp_path / "file"), "--json"]) == 1
    assert capsys.readouterr().err


def test_reference_and_tqdm_are_what_they_are_said_to_be() -> None:
    first, second = STARTS[0], STARTS[1]
    past = [first.past()]
    assert backtest.reference(second, 100.0, []) is None
    # 52 s until the weights; at 174 s three of eight shards are read: 122 s for three, and the past spans after them.
    after = first.total - first.ends[1]
    assert backtest.reference(second, 174.0, past) == pytest.approx(122.0 * 5 / 3 + after)
    assert backtest.tqdm(second, 174.0, past) == 206
    assert backtest.tqdm(second, 10.0, past) is None


@pytest.mark.parametrize(("scale", "tail"), [(0.13, 0.5), (0.2, 1.0), (0.5, 0.7), (2.0, 1.0), (5.0, 2.0), (8.0, 0.5)])
def test_another_storage_tier_is_met_within_its_first_starts(scale: float, tail: float) -> None:
    """After the 22 starts come 22 others, whose weights and other spans take another time."""
    rng = random.Random(f"{scale} {tail}")
    errors, coverage = medians([*STARTS, *(other_tier(start, scale, tail, rng) for start in STARTS)], len(STARTS))
    assert all(own < other for own, other in zip(errors["ours"], errors["tqdm"]))
    assert sum(errors["ours"]) < 1.1 * sum(errors["reference"]), "where what follows the weights is all there is"
    assert scale == 0.2 or sum(errors["ours"]) < 0.7 * sum(errors["reference"])
    assert coverage >= 0.75


def test_what_follows_the_weights_is_told_by_starts_of_another_tier_too() -> None:
    """One start on a faster storage had a compile of five times the usual: it does not outvote the eight before it."""
    usual, outlier = past_start(900.0), past_start(90.0, tail=500.0)
    shown = eta.estimate(in_weights(90.0 * 0.9, 0.9), [*[usual] * 8, outlier])
    alone = eta.estimate(in_weights(90.0 * 0.9, 0.9), [outlier])
    assert shown.low < 9.0 + 100.0 < shown.high
    assert shown.seconds < alone.seconds


def test_the_order_of_the_starts_does_not_decide() -> None:
    rng = random.Random(7)
    logarithms = []
    for _ in range(6):
        errors, coverage = medians(rng.sample(STARTS, len(STARTS)))
        assert coverage >= 0.8
        logarithms += [math.log(own / other) for own, other in zip(errors["ours"], errors["reference"])]
    assert math.exp(sum(logarithms) / len(logarithms)) < 0.65


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_rate_far_from_the_history_wins_over_it(factor: float) -> None:
    """A third is read, five times faster or slower than in all earlier starts."""
    true = 900.0 * factor
    shown = eta.estimate(in_weights(true / 3, 1 / 3), [past_start(900.0)] * 5)
    left = true * 2 / 3 + 100.0
    assert shown.seconds == pytest.approx(left, rel=0.12)
    assert shown.low < left < shown.high


def test_a_slow_load_of_a_known_tier_is_predicted_from_the_history_before_a_byte_is_read() -> None:
    seen = Seen(KEY, 10.0, (Begun("start", 0.0),), 4e11)
    shown = eta.estimate(seen, [past_start(900.0)] * 5)
    assert shown.seconds == pytest.approx(40 + 900 + 100, rel=0.1)
    assert shown.source == "from 5 earlier starts"
    half = eta.estimate(replace(seen, size=2e11), [past_start(900.0)] * 5)
    assert half.seconds == pytest.approx(40 + 450 + 100, rel=0.15), "half the bytes take half the time"


def test_sources_say_what_the_range_comes_from() -> None:
    other = past_start(900.0, key=replace(KEY, draft="/models/d"))
    assert eta.estimate(in_weights(100.0, 0.1), [past_start(900.0)]).source == "from 1 earlier start and the read rate"
    assert eta.estimate(in_weights(100.0, 0.1), []).source == "first start on this host: from the read rate only"
    source = eta.estimate(in_weights(100.0, 0.1), [other]).source
    assert source == "first start of these settings: from the read rate and 1 start of other settings"
    assert "guess" in eta.estimate(Seen(KEY, 3.0), []).source


def test_a_first_start_gives_a_wide_range_that_narrows_while_it_reads() -> None:
    widths = []
    for share in (0.05, 0.3, 0.9):
        shown = eta.estimate(in_weights(900.0 * share, share), [])
        assert shown.low < 900.0 * (1 - share) + 120.0 < shown.high
        widths.append(shown.high - shown.low)
    assert widths == sorted(widths, reverse=True)


def test_a_span_that_outlasts_every_earlier_one_stretches_the_range() -> None:
    seen = Seen(KEY, 1000.0, tuple(Begun(name, at) for name, at in zip(SPANS, (0.0, 50.0, 300.0, 310.0))), 4e11)
    shown = eta.estimate(seen, [past_start(250.0)] * 6)
    assert shown.high > 300, "the compiler has taken ten times as long as ever"


def test_the_rate_of_the_last_half_counts() -> None:
    head_cached = Reading(((0.3, 10.0), (0.35, 60.0), (0.4, 110.0)))
    assert pace.pace(head_cached, 110.0).speed == pytest.approx(0.1 / 100.0)
    overdue = pace.pace(replace(head_cached, next_share=0.45), 310.0)
    assert overdue.speed == pytest.approx(0.05 / 200.0)
    assert overdue.share <= 0.45


def test_short_shards_are_learned_and_cached_ones_are_not() -> None:
    equal = tuple((place + 1) / 8 for place in range(8))
    short_head = (0.001, 0.002, 0.002, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert shards.learned(8, []) == pytest.approx(equal)
    assert shards.learned(8, [short_head] * 3)[2] < 0.05
    assert shards.learned(8, [equal, equal, short_head])[2] == pytest.approx(3 / 8, rel=0.01)
    assert shards.learned(4, [short_head]) == pytest.approx((0.25, 0.5, 0.75, 1.0)), "of another number of files"


def test_marks_of_several_files_in_one_step_lie_evenly() -> None:
    assert shards.marks([(0, 0.0), (2, 10.0), (4, 40.0)], 4) == pytest.approx((0.125, 0.25, 0.625, 1.0))
    assert shards.marks([(0, 0.0), (2, 10.0)], 4) == (), "the end was not seen"


def test_spans_of_phases() -> None:
    phases = [Phase("config", 0.0, 5.0), Phase("workers", 5.0, 9.0), Phase("weights", 9.0, 20.0)]
    phases += [Phase("draft weights", 20.0, 22.0), Phase("post-load", 22.0, 23.0), Phase("capture", 23.0, 30.0)]
    found = spans.begun([*phases, Phase("server", 30.0), Phase("ready", 31.0)])
    assert [(span.name, span.start) for span in found] == [
        ("start", 0.0), ("weights", 9.0), ("load end", 20.0), ("capture", 23.0), ("server", 30.0),
    ]  # fmt: skip
    assert spans.durations(found, 31.0) == {
        "start": 9.0, "weights": 11.0, "load end": 3.0, "capture": 7.0, "server": 1.0,
    }  # fmt: skip


_seconds = st.floats(0.0, 1e5)
_past = st.builds(
    PastStart,
    key=st.builds(StartKey, model=st.sampled_from(["", "a", "b"]), draft=st.sampled_from(["", "d"])),
    seconds=st.dictionaries(st.sampled_from(SPANS), _seconds),
    size=st.one_of(st.none(), st.floats(1.0, 1e13)),
)


@st.composite
def _seen(draw: st.DrawFn) -> Seen:
    starts = sorted(draw(st.lists(_seconds, min_size=0, max_size=len(SPANS))))
    known = tuple(Begun(name, at) for name, at in zip(SPANS, starts))
    at = (starts[-1] if starts else 0.0) + draw(_seconds)
    shares = sorted(draw(st.lists(st.floats(0.0, 1.0), max_size=5)))
    times = sorted(draw(st.lists(_seconds, min_size=len(shares), max_size=len(shares))))
    upcoming = draw(st.one_of(st.none(), st.floats(0.0, 1.0)))
    key = StartKey(model=draw(st.sampled_from(["", "a"])))
    return Seen(
        key, at, known, draw(st.one_of(st.none(), st.floats(1.0, 1e13))), Reading(tuple(zip(shares, times)), upcoming)
    )


@settings(max_examples=150, deadline=None)
@given(_seen(), st.lists(_past, max_size=6))
def test_every_range_is_ordered_and_finite(seen: Seen, past: list[PastStart]) -> None:
    shown = eta.estimate(seen, past)
    assert 0 < shown.low <= shown.seconds <= shown.high < math.inf
    assert shown.source


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.one_of(st.none(), st.floats(0.0, 1e9))), max_size=30))
def test_the_bar_only_grows_and_stays_below_its_end(steps: list[tuple[float, float | None]]) -> None:
    share = 0.0
    for at, seconds in sorted(steps, key=lambda step: step[0]):
        known = None if seconds is None else Eta(seconds, seconds, seconds)
        after = eta.advance(share, at, known)
        assert share <= after < 1.0
        share = after
