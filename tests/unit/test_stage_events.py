"""Events of a stage: written, read back, and reduced to the progress that people see."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan import events
from pipeline.plan.events import Count, EpochSaved, Evidence, Failed, Message, Metrics, Phase
from remote.watch import stage_events

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e290, max_value=1e290)
EVENTS = st.one_of(
    st.builds(Phase, st.text(), st.text()),
    st.builds(Count, NUMBERS, st.none() | NUMBERS, st.text(), st.none() | NUMBERS),
    st.builds(Metrics, st.none() | st.integers(0, 10**9), st.dictionaries(st.text(), st.none() | NUMBERS)),
    st.builds(Message, st.sampled_from(["info", "warning", "error"]), st.text()),
    st.builds(Evidence, st.text(), st.none() | st.text() | NUMBERS | st.booleans(), st.text(), st.booleans()),
    st.builds(
        EpochSaved,
        st.text(),
        st.integers(0, 99),
        st.none() | st.integers(0, 10**9),
        st.integers(0, 10**15),
        st.none() | NUMBERS,
        st.none() | NUMBERS,
    ),
    st.builds(Failed, st.text(), st.text(), st.text(), st.text()),
)


@given(EVENTS)
def test_an_event_comes_back_as_it_was_written(event: events.Event) -> None:
    line = events.encode(event, 12.5).decode("ascii")
    assert line.count("\n") == 1
    assert events.decode(line) == (12.5, event)


@given(EVENTS, st.data())
def test_a_cut_line_is_no_event_and_breaks_nothing(event: events.Event, data: st.DataObject) -> None:
    line = events.encode(event, 1.0).decode("ascii").rstrip("\n")
    cut = line[: data.draw(st.integers(0, len(line) - 1))]
    assert events.decode(cut) is None
    assert stage_events.read_line(stage_events.initial(), cut, 1.0) == stage_events.initial()


def test_numbers_that_json_cannot_hold_become_null() -> None:
    line = events.encode(Metrics(3, {"loss": math.nan, "rate": math.inf, "good": 1.5}), 1.0)
    assert json.loads(line)["values"] == {"loss": None, "rate": None, "good": 1.5}


@pytest.mark.parametrize(
    "line",
    [
        '{"t":1,"event":"count","done":"many"}',
        '{"t":1,"event":"count","done":true}',
        '{"t":1,"event":"phase","name":["x"]}',
        '{"t":1,"event":"metrics","step":1,"values":[1]}',
        '{"t":1,"event":"metrics","step":1.5,"values":{}}',
        '{"t":1,"event":"evidence","name":"x","value":{"a":1}}',
        '{"t":1,"event":"evidence","name":"x","value":1,"ok":"yes"}',
        '{"t":1,"event":"epoch_saved","path":"/x","epoch":-1}',
        '{"t":1,"event":"epoch_saved","path":"/x","epoch":true}',
        '{"t":1,"event":"epoch_saved","path":"/x","epoch":0,"predicted_acceptance":"high"}',
        '{"t":1,"event":"from the future"}',
        '{"t":"now","event":"phase","name":"x"}',
        '{"event":"phase","name":"x"}',
        '[1]',
        "null",
        '{"t":1,"event":"count","done":1e999}',
    ],
)  # fmt: skip
def test_what_is_no_event_is_passed_over(line: str) -> None:
    assert events.decode(line) is None


def test_unknown_fields_are_ignored() -> None:
    assert events.decode('{"t":1,"event":"phase","name":"load","colour":"red"}') == (1.0, Phase("load"))


def reduce(*told: tuple[float, events.Event]) -> stage_events.StageState:
    state = stage_events.initial()
    for at, event in told:
        state = stage_events.read_line(state, events.encode(event, at).decode(), at)
    return state


def test_saved_epochs_are_kept_once_each_in_their_order() -> None:
    first, again = EpochSaved("/out/1", 1, 36, 10, 1.5), EpochSaved("/out/1", 1, 36, 10, 1.7, 3.0)
    state = reduce((1.0, first), (2.0, EpochSaved("/out/0", 0, 18, 10)), (3.0, again))
    assert state.saved == (EpochSaved("/out/0", 0, 18, 10), again)


def test_phases_end_where_the_next_begins_and_counts_belong_to_one() -> None:
    state = reduce(
        (1.0, Phase("server", "extract")),
        (2.0, Count(3, 8, "shards")),
        (9.0, Phase("synthesize")),
        (10.0, Message("info", "x")),
    )
    progress = stage_events.progress(state, done=False)
    assert [(phase.name, phase.start, phase.end) for phase in progress.phases] == [
        ("starting", 0.0, 1.0), ("server", 1.0, 9.0), ("synthesize", 9.0, None),
    ]  # fmt: skip
    assert (progress.phase, progress.done, progress.percent) == ("synthesize", None, None)
    state = stage_events.read_line(state, events.encode(Count(30, 60, "responses", 1.5), 11.0).decode(), 11.0)
    progress = stage_events.progress(state, done=False)
    assert (progress.done, progress.total, progress.unit, progress.percent, progress.rate) == (
        30,
        60,
        "responses",
        50,
        1.5,
    )


def test_figures_keep_the_latest_and_evidence_one_of_a_name() -> None:
    state = reduce(
        (1.0, Metrics(1, {"loss": 2.0, "lr": 0.1})),
        (2.0, Metrics(2, {"loss": 1.0, "lr": None})),
        (3.0, Evidence("rows", 59, "rows", False)),
        (4.0, Evidence("rows", 60, "rows")),
        (5.0, Failed("The server died.", "Run it again.", "/data/x: line 3", "server")),
    )
    assert stage_events.progress(state, done=True).figures == {"loss": 1.0, "lr": 0.1, "step": 2.0}
    assert [(item.value, item.ok) for item in state.evidence] == [(60, True)]
    assert state.failure is not None
    assert (state.failure.klass, state.failure.cause) == ("server", "/data/x: line 3: The server died.")


def test_a_flood_of_words_is_bounded() -> None:
    state = reduce(*[(float(at), Message("info", "x" * 5000)) for at in range(500)])
    assert len(state.messages) == stage_events.MAX_MESSAGES and len(state.messages[0][1]) == stage_events.MAX_TEXT
    state = reduce(*[(float(at), Phase(f"p{at}")) for at in range(500)])
    assert len(state.phases) == stage_events.MAX_PHASES and state.phases[-1].name == "p499"
