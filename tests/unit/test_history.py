"""The file of earlier starts: what is written is read, and garbage in it harms nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.watch import history
from remote.watch.history import PastStart, StartKey

KEY = StartKey("/models/m", "/data ext4", "", 4, "0.32.0", "warm", "machine")
START = PastStart(KEY, {"start": 50.0, "weights": 600.5}, 4e11, (0.25, 0.5, 1.0), False, 31.5, 1.7e9)


def test_what_is_written_is_read() -> None:
    assert history.read_lines([history.to_line(START), history.to_line(replace(START, size=None, warm=None))]) == (
        START,
        replace(START, size=None, warm=None),
    )


@pytest.mark.parametrize(
    "broken",
    [
        "", "{", "[]", "null", "7", '{"schema": 2}', '{"schema": 1, "key": {}, "seconds": {}}',
        '{"schema": 1, "key": [], "seconds": {"start": 1}}', '{"schema": 1, "key": {}, "seconds": {"start": -1}}',
        '{"schema": 1, "key": {}, "seconds": {"start": NaN}}', '{"schema": 1, "key": {}, "seconds": {"start": 1e99}}',
        '{"schema": 1, "key": {}, "seconds": {"start": true}}', '{"schema": 1, "key": {}, "seconds": {"else": 1}}',
        "[" * 5000, history.to_line(START)[:-20], "x" * (history.MAX_LINE + 1),
    ],
)  # fmt: skip
def test_a_broken_line_is_passed_over(broken: str) -> None:
    assert history.read_lines([broken, history.to_line(START), broken]) == (START,)


def test_wrong_parts_of_a_record_are_unknown() -> None:
    data = json.loads(history.to_line(START))
    data.update(size="big", marks=[0.5, 0.2], warm="no", silence=-1, wall=None)
    data["key"].update(model=7, tensor_parallel=True)
    (read,) = history.read_lines([json.dumps(data)])
    assert read == PastStart(replace(KEY, model="", tensor_parallel=0), dict(START.seconds))


def test_only_the_newest_are_read() -> None:
    lines = [history.to_line(replace(START, wall=float(place))) for place in range(history.MAX_STARTS + 5)]
    assert [start.wall for start in history.read_lines(lines)] == [float(place) for place in range(5, len(lines))]


def test_likeness_falls_with_every_difference() -> None:
    assert history.likeness(KEY, KEY) == 1.0
    other_model = history.likeness(KEY, replace(KEY, model="/models/n"))
    assert history.likeness(KEY, replace(KEY, draft="/models/d")) < other_model < 1.0
    assert history.likeness(KEY, replace(KEY, model="/models/n", version="0.33.0")) < other_model


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from([*START.__dataclass_fields__]), _json), st.dictionaries(st.text(max_size=6), _json)
)
def test_garbage_never_raises(fields: dict[str, object], key: dict[str, object]) -> None:
    data = {**json.loads(history.to_line(START)), **fields}
    if isinstance(data["key"], dict):
        data["key"] = {**data["key"], **key}
    for start in history.read_lines([json.dumps(data)]):
        assert all(value >= 0 for value in start.seconds.values())
        history.to_line(start)
