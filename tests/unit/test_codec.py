"""Records to JSON lines and back, and what a broken or newer peer may send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.protocol import disk, frames, gpu, host, jobs, progress, stages
from remote.protocol.codec import MAX_FRAME_BYTES, decode_line, encode_line, from_wire, to_wire
from remote.protocol.errors import ProtocolError

RECORDS = [
    value
    for module in (disk, gpu, host, jobs, progress, stages)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Record:
    number: int
    share: float = 0.0
    flag: bool = False
    inner: Optional[Inner] = None
    many: tuple[Inner, ...] = ()
    named: dict[str, int] = field(default_factory=dict)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values that a field of this type may hold."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{item.name: values_of(hints[item.name]) for item in fields(hint)})
    if origin is Union:
        return st.none() | values_of(args[0])
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(), values_of(args[1]), max_size=2)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return json_values if hint is Any else st.from_type(hint)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_record_survives_the_wire(kind: type[Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(values_of(kind))
    def round_trip(record: Any) -> None:
        assert from_wire(kind, json.loads(json.dumps(to_wire(record)))) == record

    round_trip()


@given(st.dictionaries(st.text(), json_values))
def test_a_line_is_one_line_of_ascii(data: dict[str, Any]) -> None:
    line = encode_line(data)
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert decode_line(line) == data


def test_missing_fields_get_their_defaults_and_unknown_ones_are_ignored() -> None:
    assert from_wire(Record, {"number": 1, "of the future": {}}) == Record(1)
    assert from_wire(Record, {"number": 1, "share": 2}).share == 2.0
    assert isinstance(from_wire(Record, {"number": 1, "share": 2}).share, float)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "Record lacks the field number"),
        ({"number": "1"}, "Record.number has the wrong type: str"),
        ({"number": True}, "Record.number has the wrong type: bool"),
        ({"number": 1.5}, "Record.number has the wrong type: float"),
        ({"number": None}, "Record.number has the wrong type: NoneType"),
        ({"number": 1, "flag": 1}, "Record.flag has the wrong type: int"),
        ({"number": 1, "share": "0.5"}, "Record.share has the wrong type: str"),
        ({"number": 1, "inner": []}, "Record.inner has the wrong type: list"),
        ({"number": 1, "inner": {}}, "Record.inner lacks the field name"),
        ({"number": 1, "many": {}}, "Record.many has the wrong type: dict"),
        ({"number": 1, "many": [{"name": "a"}, {"name": 2}]}, "Record.many[1].name has the wrong type: int"),
        ({"number": 1, "named": {"a": "b"}}, "Record.named.a has the wrong type: str"),
        ([], "Record has the wrong type: list"),
        (None, "Record has the wrong type: NoneType"),
    ],
)
def test_wrong_types_are_refused_by_name(data: Any, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        from_wire(Record, data)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "middle of a frame"),
        (b'{"t": "ping", "n": 1}', "middle of a frame"),
        (b"[]\n", "not a JSON object"),
        (b'"text"\n', "not a JSON object"),
        (b"{\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b'{"a": "' + b"x" * 300 * 1024 + b'"}\n', "over the limit"),
    ],
    ids=["empty", "cut", "list", "text", "half", "bytes", "deep", "300 KiB"],
)
def test_lines_that_are_no_frames_are_refused(line: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode_line(line)


def test_a_frame_over_the_limit_is_never_sent() -> None:
    room = MAX_FRAME_BYTES - len(b'{"a":""}\n')
    assert len(encode_line({"a": "x" * room})) == MAX_FRAME_BYTES
    with pytest.raises(ProtocolError, match="over the limit"):
        encode_line({"a": "x" * (room + 1)})


def test_what_is_not_json_is_never_sent() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode_line({"a": value})


def test_all_frames_are_records_too() -> None:
    assert from_wire(frames.Request, {"id": 1, "op": "jobs"}).args == {}
