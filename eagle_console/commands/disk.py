"""``disk``: the artifact directories of the workspace and what they take."""

from __future__ import annotations

import time
from dataclasses import replace

from eagle_console import documents
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, count, duration_in_words, gb
from eagle_console.output import Output
from remote.protocol.disk import DiskSnapshot


async def disk(call: Invocation) -> ExitCode:
    async with call.host() as client:
        snapshot = await client.disk()
    if call.arguments.directories and not snapshot.problem:
        snapshot = _select(snapshot, call.arguments.directories)
    if call.out.json:
        call.out.document(documents.disk(snapshot))
    else:
        show(snapshot, call.out)
    return ExitCode.FAILED if snapshot.problem else ExitCode.DONE


def show(snapshot: DiskSnapshot, out: Output) -> None:
    if snapshot.problem:
        out.line(f"Disk: {snapshot.problem}")
        return
    rows = [
        (
            gb(entry.allocated),
            count(entry.files),
            growth_words(entry.growth),
            UNKNOWN if entry.modified is None else duration_in_words(time.time() - entry.modified),
            entry.name + (f"  (lower bound: {entry.incomplete} unreadable)" if entry.incomplete else ""),
        )
        for entry in snapshot.entries
    ]
    out.table(("SIZE", "FILES", "GROWTH", "CHANGED", "DIRECTORY"), rows, right=(0, 1, 2, 3))
    total = gb(sum(entry.allocated for entry in snapshot.entries))
    free = ""
    if snapshot.filesystem:
        free = f"; {gb(snapshot.filesystem.free)} free of {gb(snapshot.filesystem.total)}"
    out.line(f"{total} in {snapshot.workspace}{free}{full_words(snapshot)}")
    if snapshot.own:
        parts = ", ".join(f"{entry.name} {gb(entry.allocated)}" for entry in snapshot.own)
        out.line(f"Beside that, what eagle-console keeps there itself: {parts}")


def full_words(snapshot: DiskSnapshot) -> str:
    """How fast the file system fills up and when it is full, as the end of a sentence; empty while that is unknown."""
    if snapshot.growth is None:
        return ""
    if snapshot.full_in is None:
        return f"; used space changes by {growth_words(snapshot.growth)}"
    return f"; it grows by {gb(snapshot.growth)}/h and is full in {duration_in_words(snapshot.full_in)}"


def growth_words(rate: float | None) -> str:
    """Bytes an hour with their sign: ``+1.2 GB/h``, ``0 B/h``."""
    return UNKNOWN if rate is None else f"{'+' if rate > 0 else ''}{gb(rate)}/h"


def _select(snapshot: DiskSnapshot, names: list[str]) -> DiskSnapshot:
    by_name = {entry.name: entry for entry in snapshot.entries} | {entry.path: entry for entry in snapshot.entries}
    wanted = [name.rstrip("/") for name in names]
    for name in wanted:
        if name not in by_name:
            known = ", ".join(entry.name for entry in snapshot.entries) or "none"
            raise UsageError(f"{name} is not an artifact directory of {snapshot.workspace}; there are: {known}")
    return replace(snapshot, entries=tuple(by_name[name] for name in wanted))
