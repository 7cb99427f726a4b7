"""``journal``: who changed what on the host, when and why, with what was known of it."""

from __future__ import annotations

from eagle_console import disk_documents, journal_copy
from eagle_console.commands.invocation import Invocation
from eagle_console.exit_codes import ExitCode
from eagle_console.format import gb, stamp
from eagle_console.output import Output
from remote.protocol.trash import Journal

DEFAULT_ENTRIES = 50


async def journal(call: Invocation) -> ExitCode:
    """Prints the journal and keeps a copy of it here. A broken chain, or a journal that contradicts the copy, fails."""
    async with call.host() as client:
        found = await client.journal(call.arguments.tail)
        compared = journal_copy.keep(found, client.hello)
    if call.out.json:
        call.out.document(disk_documents.journal(found, compared))
    else:
        show(found, call.out)
    if compared.words:
        call.out.say(compared.words)
    sound = found.broken is None and not found.problem and not compared.differs and not compared.lost
    return ExitCode.DONE if sound else ExitCode.FAILED


def show(found: Journal, out: Output) -> None:
    if found.problem:
        out.line(f"Journal: {found.problem}")
    if found.broken is not None:
        out.line(f"THE CHAIN IS BROKEN AT ENTRY {found.broken}: what stands there was changed after it was written")
    if not found.entries:
        if not found.problem:
            out.line("nothing was changed on this host yet")
        return
    rows = [
        (str(entry.seq), stamp(entry.wall), entry.action, "" if entry.bytes is None else gb(entry.bytes), entry.who,
         entry.text if entry.sound else f"NOT AS WRITTEN: {entry.text}")
        for entry in found.entries
    ]  # fmt: skip
    out.table(("ENTRY", "WHEN", "WHAT", "SIZE", "WHO", "SAYS"), rows, right=(0, 3))
