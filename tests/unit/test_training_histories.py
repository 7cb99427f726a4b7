"""Rate, time left, stalls and broken losses over generated histories of training runs, and over recorded real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

import pytest
from fixtures import training_histories as histories
from fixtures.training_histories import History, Moment
from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan import events
from remote.protocol.progress import Eta
from remote.watch import stage_events, steps, training

FIXTURES = Path(__file__).parents[1] / "fixtures"

Shown = tuple[Optional[float], Optional[Eta], str]
"""Steps a second, what is left, and what is wrong."""


def of_console(history: History) -> Iterator[tuple[Moment, Callable[[float], Shown]]]:
    state = training.initial()
    for moment in history.moments:
        state = training.read_line(state, moment.line, moment.at)

        def ask(at: float, state: training.TrainingState = state) -> Shown:
            shown = training.progress(state, at)
            return shown.steps_per_second, shown.eta, shown.problem

        yield moment, ask


def of_stage(history: History) -> Iterator[tuple[Moment, Callable[[float], Shown]]]:
    state = stage_events.initial()
    for moment in history.moments:
        state = stage_events.read_line(state, moment.line, moment.at)

        def ask(at: float, state: stage_events.StageState = state) -> Shown:
            shown = stage_events.progress(state, False, at)
            return steps.rate(state.steps), shown.eta, shown.bottleneck

        yield moment, ask


WAYS = {"console": (histories.console, of_console), "stage": (histories.stage, of_stage)}
CASES = [(way, trouble, seed) for way in WAYS for trouble in histories.TROUBLES for seed in range(6)]


@pytest.mark.parametrize(("way", "trouble", "seed"), CASES)
def test_a_history_is_told_as_it_was(way: str, trouble: str, seed: int) -> None:
    make, read = WAYS[way]
    history = make(seed, trouble)
    errors, stalled, broken_at = [], [], None
    read_moments = list(read(history))
    for place, (moment, ask) in enumerate(read_moments):
        rate, eta, problem = ask(moment.at)
        if rate is not None:
            assert rate < 1.3 * moment.rate, "never faster than it was, whatever lay between"
            assert rate > 0.6 * moment.rate or not moment.settled
        if moment.step < history.epoch_length and way == "console":
            assert eta is None, "nothing says how long an epoch is before one has ended"
        if eta is not None:
            assert 0 <= eta.low <= eta.seconds <= eta.high and eta.source and 0 <= eta.share < 1
        if "not a number" in problem and broken_at is None:
            broken_at = moment.step
        later = read_moments[place + 1][0].at if place + 1 < len(read_moments) else moment.at
        if "Stalled" in ask((moment.at + later) / 2)[2]:
            stalled.append((moment.at, later))
        whole = moment.step >= 1.2 * history.epoch_length
        if eta is not None and whole and trouble in ("", histories.NAN) and moment.step < history.total:
            errors.append(abs(eta.seconds - (history.end - moment.at)) / history.end)
    assert broken_at == history.broken
    assert all(any(begin <= late <= end for begin, end in history.stalls) for _, late in stalled)
    if trouble == histories.STALL:
        assert stalled
    if trouble in ("", histories.NAN):
        assert errors and max(errors) < 0.12 and sorted(errors)[len(errors) // 2] < 0.08


@pytest.mark.parametrize("way", list(WAYS))
def test_a_stall_is_named_with_what_is_usual(way: str) -> None:
    make, read = WAYS[way]
    history = make(3, histories.STALL)
    begin, _ = history.stalls[0]
    last = [(moment, ask) for moment, ask in read(history) if moment.at <= begin][-1]
    assert last[1](last[0].at + 20)[2] == ""
    words = last[1](last[0].at + 115)[2]
    assert words.startswith("Stalled: no step") and "for 115 s (the longest wait so far was" in words


@pytest.mark.parametrize("way", list(WAYS))
def test_a_validation_before_any_was_seen_is_no_stall_and_a_later_one_is_measured_by_the_first(way: str) -> None:
    make, read = WAYS[way]
    history = make(1, "")
    pauses = [(moment, ask) for moment, ask in read(history) if moment.pause and moment.step > 0]
    assert pauses[0][1](pauses[0][0].at + 300)[2] == ""
    assert "longest pause so far" in pauses[-2][1](pauses[-2][0].at + 900)[2]


def test_the_time_left_has_room_for_pauses_and_says_when_none_was_seen() -> None:
    history = histories.stage(2, "")
    sources = [(moment, eta.source) for moment, ask in of_stage(history) if (eta := ask(moment.at)[1]) is not None]
    first = [source for moment, source in sources if 2 < moment.step < history.epoch_length]
    assert first and all("none was seen yet" in source for source in first)
    second = [source for moment, source in sources if history.epoch_length < moment.step < 2 * history.epoch_length]
    assert second and "1 pause for validation and checkpoints" in second[-1]


@pytest.mark.parametrize("name", ["speculators_train.log", "speculators_train_wide.log"])
def test_a_real_run_on_a_busy_machine_is_never_told_absurdly(name: str) -> None:
    """Its steps took 0.4 s, then 0.9 s while something else ran, then 0.4 s; its pauses 6.6 s and 0.4 s."""
    pairs = [line.partition("\t") for line in (FIXTURES / name).read_text().split("\n") if line]
    state, told = training.initial(), []
    for at, _, line in pairs:
        state = training.read_line(state, line, float(at))
        shown = training.progress(state, float(at))
        assert "Stalled" not in shown.problem
        if shown.eta is not None and shown.epoch == 3 and shown.phase == "training":
            told.append((float(at), shown.eta))
    end = float(pairs[-1][0])
    assert told
    for at, eta in told:
        assert abs(at + eta.seconds - end) < 0.45 * end


def test_the_records_of_a_real_run_of_ours() -> None:
    """Its four epochs took 0.43 s each, the first of them longer: there is a time left from the second on."""
    state, ends = stage_events.initial(), []
    for record in map(json.loads, (FIXTURES / "speculators_run" / "metrics.jsonl").read_text().splitlines()):
        at = record["t"] - 1796083624.754
        if record["kind"] == "epoch":
            told: list[events.Event] = [
                events.Metrics(record["global_step"], {"epoch": record["epoch"] + 1, "epoch_steps": record["steps"]}),
                events.Phase("train"),
            ]
        elif record["kind"] == "train":
            told = [events.Count(record["step"] + 1, 72, "steps")]
        elif record["kind"] == "saved":
            told = [events.Count(record["global_step"], 72, "steps"), events.Phase("save"), events.Phase("validate")]
        else:
            continue
        for event in told:
            state = stage_events.read_line(state, events.encode(event, 0.0).decode(), at)
        eta = stage_events.progress(state, False, at).eta
        if eta is not None:
            ends.append(at + eta.seconds)
    assert ends and 1.2 < ends[-1] < 2.5, "it ended after 1.74 s"


def test_rows_have_their_rate_time_left_and_stall() -> None:
    state = stage_events.initial()
    for second in range(200):
        if second in (0, 5):
            name = "server" if second == 0 else "synthesize"
            state = stage_events.read_line(state, events.encode(events.Phase(name), 0.0).decode(), float(second))
        if second > 5:
            line = events.encode(events.Count(min(1000, 4 * (second - 5)), 1000, "prompts"), 0.0).decode()
            state = stage_events.read_line(state, line, float(second))
    shown = stage_events.progress(state, False, 200.0)
    assert shown.eta is not None and shown.eta.seconds == pytest.approx((1000 - 4 * 194) / 4, rel=0.05)
    assert "prompts" in shown.eta.source and "pause" not in shown.eta.source
    assert shown.bottleneck == ""
    assert stage_events.progress(state, False, 300.0).bottleneck.startswith("Stalled: no prompts for 101 s")
    assert stage_events.progress(state, False).eta is None, "what has ended has nothing left"
    state = stage_events.read_line(state, events.encode(events.Phase("check"), 0.0).decode(), 301.0)
    assert stage_events.progress(state, False, 301.0).eta is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 500), st.none() | st.floats(0, 1e6), st.none() | st.integers(0, 5), st.booleans()
        ),
        max_size=80,
    ),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(1, 50),
)  # fmt: skip
def test_no_order_of_arrivals_breaks_it(
    arrivals: list[tuple[int, Optional[float], Optional[int], bool]], total: Optional[int], length: Optional[int]
) -> None:
    state, now = steps.Steps(), 0.0
    for count, at, epoch, paused in arrivals:
        now = max(now, at or 0.0)
        state = steps.arrived(steps.pause(state) if paused else state, count, None if at is None else now, epoch)
    for speed in (steps.rate(state), steps.overall(state)):
        assert speed is None or 0 < speed < float("inf")
    eta = steps.eta(state, now, total, length)
    assert eta is None or (0 <= eta.low <= eta.seconds <= eta.high < float("inf") and 0 <= eta.share < 1)
    assert len(state.points) <= steps.KEPT
    steps.stall(state, now + 50)
