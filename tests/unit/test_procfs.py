"""Processes as /proc shows them: names made to mislead, zombies, trees, identities."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from remote import procfs
from remote.procfs import Stat, descendants, parse_stat
from remote.protocol.jobs import ProcessId

TAIL = "S 1 2 3 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 4242 100 50 18446744073709551615"


@pytest.mark.parametrize("comm", ["python", "a b", "x) S 7 7 7 (y", ")", "", "((("])
def test_a_command_cannot_forge_the_record(comm: str) -> None:
    record = parse_stat(f"17 ({comm}) {TAIL}")
    assert record == Stat(17, comm, "S", parent=1, group=2, session=3, start_ticks=4242)


@pytest.mark.parametrize("text", ["", "17", "17 (x", "17 (x) S", "x (y) " + TAIL, "17 (x) S one 2 3"])
def test_what_is_no_record(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(text)


def tree(*rows: tuple[int, int, str]) -> dict[int, Stat]:
    return {pid: Stat(pid, "x", state, parent, pid, pid, pid) for pid, parent, state in rows}


def test_descendants_parents_first_without_the_roots_and_the_dead() -> None:
    processes = tree((1, 0, "S"), (2, 1, "S"), (3, 2, "S"), (4, 3, "Z"), (5, 3, "S"), (6, 1, "S"), (7, 6, "S"))
    assert [record.pid for record in descendants([2], processes)] == [3, 5]
    assert [record.pid for record in descendants([1], processes)] == [2, 6, 3, 7, 5]
    assert [record.pid for record in descendants([2, 3], processes)] == [5]
    assert descendants([99], processes) == []


def test_a_circle_of_parents_ends() -> None:
    assert [record.pid for record in descendants([1], tree((1, 2, "S"), (2, 1, "S")))] == [2]


def test_identity_is_more_than_a_pid() -> None:
    me = procfs.identity(os.getpid())
    assert me is not None and procfs.alive(me)
    assert not procfs.alive(ProcessId(me.pid, me.start_ticks + 1, me.boot_id))
    assert not procfs.alive(ProcessId(me.pid, me.start_ticks, "another boot"))


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = procfs.identity(child.pid)
    assert identity is not None and procfs.alive(identity)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    record = procfs.stat(child.pid)
    assert record is not None and record.zombie, "it is still there"
    assert not procfs.alive(identity)
    child.wait()
    assert procfs.stat(child.pid) is None and procfs.identity(child.pid) is None


def test_reading_what_is_not_there() -> None:
    assert procfs.stat(2**22 + 1) is None
    assert procfs.command_line(2**22 + 1) is None and procfs.owner(2**22 + 1) is None
    assert procfs.owner(os.getpid()) == os.getuid()
    assert os.getpid() in procfs.table()
    assert "python" in (procfs.command_line(os.getpid()) or "")
