from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.watch.follow import LineSplitter, LogFollower


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"no end"], []),
        ([b"on", b"e\nt", b"wo\n"], ["one", "two"]),
        ([b"dos\r\nnext\r\n"], ["dos", "next"]),
        ([b"dos\r", b"\nnext\n"], ["dos", "next"]),
        ([b"a\n\nb\n"], ["a", "", "b"]),
        ([b"a\r\n\r\nb\n"], ["a", "", "b"]),
        ([b"\rbar 1/2\rbar 2/2\n"], ["bar 1/2", "bar 2/2"]),
        ([b"(EngineCore pid=1) \rbar 0/2\n\r", b"bar 1/2\n"], ["(EngineCore pid=1) ", "bar 0/2", "bar 1/2"]),
        ([b"\x1b[1;36m(Worker)\x1b[0;0m INFO\n"], ["(Worker) INFO"]),
        ([b"\x1b[3", b"1mred\x1b[0m\n"], ["red"]),
        ([b"\x1b]0;title\x07text\x1b[A\n"], ["text"]),
        (["ü".encode()[:1], "ü".encode()[1:] + b"\n"], ["ü"]),
        ([b"\xff\xfe\n"], ["\ufffd\ufffd"]),
    ],
)
def test_lines_of_pieces(pieces: list[bytes], lines: list[str]) -> None:
    splitter = LineSplitter()
    assert [line for piece in pieces for line in splitter.feed(piece)] == lines


def test_a_long_line_is_cut_and_the_next_is_whole() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    lines = [line for piece in (b"0123456", b"789abcdef", b"more\nnext\n") for line in splitter.feed(piece)]
    assert lines == ["0123456789", "next"]


def test_flush_gives_the_line_without_an_end_once() -> None:
    splitter = LineSplitter()
    splitter.feed(b"done\nKilled")
    assert splitter.flush() == ["Killed"]
    assert splitter.flush() == []


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_cuts_do_not_change_the_lines(data: bytes, cuts: list[int]) -> None:
    whole = LineSplitter()
    expected = whole.feed(data) + whole.flush()
    cut = LineSplitter()
    edges = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    lines = [line for start, end in zip(edges, edges[1:]) for line in cut.feed(data[start:end])]
    assert lines + cut.flush() == expected
    assert all("\n" not in line and "\r" not in line and "\x1b" not in line for line in expected)


def test_follows_what_is_appended(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    follower = LogFollower(str(log))
    assert follower.poll() == []
    log.write_bytes(b"one\ntw")
    assert follower.poll() == ["one"]
    assert follower.offset == 6
    with log.open("ab") as file:
        file.write(b"o\nthree")
    assert follower.poll() == ["two"]
    assert follower.poll() == []
    assert follower.flush() == ["three"]


def test_reads_at_most_so_much_at_once(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    log.write_bytes(b"12345\n" * 10)
    follower = LogFollower(str(log), max_bytes_per_poll=12)
    assert follower.poll() == ["12345", "12345"]
    assert follower.offset == 12


def test_a_shorter_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    log.write_bytes(b"a long first line\n")
    follower = LogFollower(str(log))
    follower.poll()
    log.write_bytes(b"new\n")
    assert follower.poll() == ["new"]


def test_a_replaced_file_of_the_same_size_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    log.write_bytes(b"one\npart")
    follower = LogFollower(str(log))
    follower.poll()
    other = tmp_path / "other"
    other.write_bytes(b"two\nfour")
    other.rename(log)
    assert follower.poll() == ["two"]
    assert follower.flush() == ["four"]


def test_a_folder_in_the_place_of_the_file_has_no_lines(tmp_path: Path) -> None:
    assert LogFollower(str(tmp_path)).poll() == []
