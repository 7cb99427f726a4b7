"""``compare``: two jobs side by side, their settings and what came of them."""

from __future__ import annotations

import asyncio

from eagle_console import comparing
from eagle_console.adopted import adopted_id, as_job
from eagle_console.client import HostClient
from eagle_console.commands import watch
from eagle_console.commands.invocation import Invocation
from eagle_console.comparing import Comparison, change_words, value_words
from eagle_console.exit_codes import ExitCode
from eagle_console.output import Output
from remote.protocol.adopted import Adopted
from remote.protocol.jobs import Job


async def compare(call: Invocation) -> ExitCode:
    async with call.host() as client:
        words = (call.arguments.left, call.arguments.right)
        (left, ours), (right, theirs) = await asyncio.gather(*(_find(client, word) for word in words))
    found = comparing.compare(left, right, [record for record in (ours, theirs) if record is not None])
    if call.out.json:
        call.out.document(comparing.document(found))
    else:
        show(found, call.out)
    return ExitCode.DONE


def show(found: Comparison, out: Output) -> None:
    """Differing settings first, then what is the same, then the results."""
    rows = [
        ("*" if pair.left != pair.right else "", pair.name, value_words(pair.left), value_words(pair.right), "")
        for pair in found.settings
    ]
    rows += [
        ("", pair.name, value_words(pair.left, pair.unit), value_words(pair.right, pair.unit), change_words(pair))
        for pair in found.results
    ]
    out.table(("", "", found.left.id, found.right.id, "CHANGE"), rows)


async def _find(client: HostClient, word: str) -> tuple[Job, Adopted | None]:
    if adopted_id(word):
        record = await watch.find(client, word)
        return as_job(record), record
    return await client.job(word), None
