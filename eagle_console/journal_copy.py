"""The console's own copy of a host's journal: what was deleted stays known here when the host's disk is gone.

A copy is a file of JSON lines, one entry each, in the state directory. It is only ever added to, so that it also shows
when a host's journal says something else than it said before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from eagle_console.client import HostClient
from eagle_console.config import state_dir
from eagle_console.link.errors import LinkError
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import ProtocolError, RequestError
from remote.protocol.frames import AgentHello
from remote.protocol.trash import Journal, JournalEntry

KEPT_AT_ONCE = 200
"""Entries that are asked of a host to keep the copy up to date."""


@dataclass(frozen=True)
class Comparison:
    """What the copy says about a host's journal.

    :param path: of the copy.
    :param differs: places at which the host now says something else than the copy.
    :param lost: places that the copy has and that are beyond the end of the host's journal.
    :param problem: why the copy could not be kept; empty otherwise.
    """

    path: Path
    differs: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    problem: str = ""

    @property
    def words(self) -> str:
        """What is wrong, as a sentence; empty where host and copy agree."""
        if self.problem:
            return f"the copy of the journal at {self.path} could not be kept: {self.problem}"
        found = [
            f"entry {', '.join(map(str, places))} {what}"
            for places, what in ((self.differs, "differs from the copy"), (self.lost, "is gone on the host"))
            if places
        ]
        return f"the host's journal has changed: {'; '.join(found)} ({self.path})" if found else ""


def path_of(hello: AgentHello) -> Path:
    """Where the copy for a host and its workspace is."""
    key = hashlib.sha256(f"{hello.machine_id}\0{hello.user}\0{hello.workspace}".encode(errors="replace")).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", hello.host)[:60] or "host"
    return state_dir() / "journals" / f"{name}-{key[:12]}.jsonl"


def keep(journal: Journal, hello: AgentHello) -> Comparison:
    """Adds what is new to the copy and compares the rest. Never raises: a full disk here must not hide the journal."""
    path = path_of(hello)
    try:
        before = _read(path)
        now = {entry.seq: replace(entry, sound=True) for entry in journal.entries}
        new = [entry for seq, entry in sorted(now.items()) if seq not in before]
        if new:
            _append(path, new)
    except (OSError, ValueError) as error:
        return Comparison(path, problem=str(error))
    differs = tuple(sorted(seq for seq, entry in now.items() if seq in before and before[seq] != entry))
    newest = max(now, default=None)
    lost = tuple(sorted(seq for seq in before if newest is not None and seq > newest))
    return Comparison(path, differs, lost)


async def update(client: HostClient) -> str:
    """Brings the copy up to date after a change, and gives what is wrong as a sentence, empty where nothing is."""
    try:
        return keep(await client.journal(KEPT_AT_ONCE), client.hello).words
    except (LinkError, RequestError, ProtocolError) as error:
        return f"the journal was not copied: {error}"


def _read(path: Path) -> dict[int, JournalEntry]:
    """The entries of a copy by their place; the first of a place counts, a torn last line does not."""
    entries: dict[int, JournalEntry] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return entries
    for line in text.splitlines():
        try:
            entry = from_wire(JournalEntry, json.loads(line))
        except (ValueError, ProtocolError):
            continue
        entries.setdefault(entry.seq, entry)
    return entries


def _append(path: Path, entries: list[JournalEntry]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Every entry begins its own line, so that a torn one before it does not spoil it.
    lines = "".join("\n" + json.dumps(to_wire(entry)) for entry in entries)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, lines.encode("ascii"))
    finally:
        os.close(descriptor)
