"""Finding what runs: vLLM servers, their engines and workers, and training runs, out of /proc.

A scan looks at every pid's name only; what a pid was is remembered with its start time. Young processes are read again
at every scan, since they may still become something else (a title, an ``exec``), old uninteresting ones in turns.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from remote import procfs
from remote.adopt import recognising
from remote.adopt.recognising import Recognised
from remote.procfs import Stat
from remote.protocol import adopted
from remote.protocol.jobs import ProcessId

YOUNG_SECONDS = 120.0
TURNS = 10
"""Old processes are read again in one of so many scans."""

MAX_COMMAND_BYTES = 64 * 1024
"""Of a command line; the kernel allows megabytes, and anybody can make one."""

MAX_DEPTH = 64
"""Ancestors that are climbed: /proc changes while it is read, so that a circle can appear in it."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Found:
    """A program that was found: its main process and all processes of it that vLLM or the launcher started.

    ``argv`` are the words of the main process, None where they cannot be read; ``what`` what they mean.
    """

    kind: str
    main: ProcessId
    processes: tuple[ProcessId, ...]
    what: Recognised
    argv: Optional[tuple[str, ...]]
    uid: Optional[int]


@dataclass(frozen=True)
class _Entry:
    stat: Stat
    what: Optional[Recognised]
    argv: Optional[tuple[str, ...]]
    hidden: bool = False


class Finder:
    """Scans of this host, each cheap after the first. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, _Entry] = {}
        self._round = 0
        self.unseen = 0

    def scan(self, ours: Collection[ProcessId]) -> list[Found]:
        """What runs now, without the processes in ``ours`` and all that descend from them; the newest first."""
        self._look()
        ancestors = _Ancestry(self._known)
        ours = frozenset(ours)
        roots: dict[int, list[_Entry]] = {}
        parts: list[_Entry] = []
        for entry in self._known.values():
            if entry.what is None or entry.stat.zombie:
                continue
            chain = ancestors.of(entry.stat)
            if any(_identity(stat) in ours for stat in chain):
                continue
            root = self._root(chain)
            if root is not None:
                roots.setdefault(root.pid, []).append(entry)
            elif entry.what.role == recognising.PART:
                parts.append(entry)
        found = [self._program(self._known[pid], entries) for pid, entries in roots.items()]
        found += self._without_server(parts, ancestors)
        return sorted(found, key=lambda program: program.main.start_ticks, reverse=True)

    def _look(self) -> None:
        """Brings what is known up to date."""
        self._round += 1
        now = _uptime()
        known: dict[int, _Entry] = {}
        self.unseen = 0
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            entry = self._known.get(pid)
            if entry is None or entry.what is not None or self._due(entry, now):
                entry = _read(pid)
            if entry is not None:
                known[pid] = entry
                self.unseen += entry.hidden
        self._known = known

    def _due(self, entry: _Entry, now: float) -> bool:
        young = now - entry.stat.start_ticks / _TICKS < YOUNG_SECONDS
        return young or entry.stat.pid % TURNS == self._round % TURNS

    def _root(self, chain: list[Stat]) -> Optional[Stat]:
        """The topmost process of a chain that is a program of its own and not a part of one."""
        for stat in reversed(chain):
            entry = self._known.get(stat.pid)
            if entry is not None and entry.what is not None and entry.what.role != recognising.PART:
                return stat
        return None

    def _program(self, main: _Entry, entries: list[_Entry]) -> Found:
        assert main.what is not None
        training = main.what.role in (recognising.TRAINING, recognising.LAUNCHER)
        members = sorted((entry.stat for entry in entries), key=lambda stat: stat.start_ticks)
        return Found(
            adopted.KIND_TRAINING if training else adopted.KIND_SERVER,
            _identity(main.stat),
            tuple(_identity(stat) for stat in members),
            main.what,
            main.argv,
            procfs.owner(main.stat.pid),
        )

    def _without_server(self, parts: list[_Entry], ancestors: _Ancestry) -> list[Found]:
        """Engines and workers without an API server above them: orphans, or inside another program.

        An orphan's new parent is the first process or a reaper, which is in another session than itself.
        """
        groups: dict[tuple[str, int, int], list[_Entry]] = {}
        for entry in parts:
            owner = ancestors.outside(entry.stat)
            if owner is None:
                key = (adopted.KIND_ORPHAN, entry.stat.session, entry.stat.group)
            else:
                key = (adopted.KIND_ENGINE, owner.pid, 0)
            groups.setdefault(key, []).append(entry)
        return [self._engine(kind, owner, entries) for (kind, owner, _), entries in groups.items()]

    def _engine(self, kind: str, owner: int, entries: list[_Entry]) -> Found:
        entries = sorted(entries, key=lambda entry: entry.stat.start_ticks)
        first = next((entry for entry in entries if "Engine" in _title(entry)), entries[0])
        main = self._known.get(owner, first) if kind == adopted.KIND_ENGINE else first
        members = {_identity(entry.stat): None for entry in (main, *entries)}
        assert first.what is not None
        argv = main.argv if main.argv is not None else command(main.stat.pid)
        return Found(kind, _identity(main.stat), tuple(members), first.what, argv, procfs.owner(main.stat.pid))


class _Ancestry:
    """The chains of parents during one scan, each process read once."""

    def __init__(self, known: dict[int, _Entry]) -> None:
        self._stats: dict[int, Optional[Stat]] = {
            pid: entry.stat for pid, entry in known.items() if entry.what is not None
        }

    def of(self, stat: Stat) -> list[Stat]:
        """The process itself, its parent, and so on."""
        chain: list[Stat] = []
        current: Optional[Stat] = stat
        while current is not None and len(chain) < MAX_DEPTH:
            chain.append(current)
            current = self._get(current.parent) if current.parent > 0 else None
        return chain

    def outside(self, stat: Stat) -> Optional[Stat]:
        """The nearest ancestor that is no part of vLLM, if the process still is where it was started; else None."""
        current = stat
        for parent in self.of(stat)[1:]:
            if parent.session != current.session or parent.pid == 1:
                return None
            if not recognising.is_part(command(parent.pid) or ()):
                return parent
            current = parent
        return None

    def _get(self, pid: int) -> Optional[Stat]:
        if pid not in self._stats:
            self._stats[pid] = procfs.stat(pid)
        return self._stats[pid]


def started_wall(process: ProcessId) -> Optional[float]:
    """When a process of this boot was started, wall seconds."""
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1]) + process.start_ticks / _TICKS
    except (OSError, ValueError, IndexError):
        pass
    return None


def _read(pid: int) -> Optional[_Entry]:
    stat = procfs.stat(pid)
    if stat is None:
        return None
    argv = command(pid)
    what = recognising.recognise(argv) if argv else None
    return _Entry(stat, what, argv if what is not None else None, hidden=argv is None)


def command(pid: int) -> Optional[tuple[str, ...]]:
    """The words of a process's command line, empty for a kernel thread; None when they cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(MAX_COMMAND_BYTES)
    except OSError:
        return None
    return tuple(word.decode("utf-8", "replace") for word in data.rstrip(b"\0").split(b"\0")) if data else ()


def _title(entry: _Entry) -> str:
    return entry.what.title if entry.what is not None else ""


def _identity(stat: Stat) -> ProcessId:
    return ProcessId(stat.pid, stat.start_ticks, procfs.boot_id())


def _uptime() -> float:
    try:
        return float(Path("/proc/uptime").read_text().split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return 0.0
