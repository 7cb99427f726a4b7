"""``pin``: a person's word that a path stays, whatever the evidence says."""

from __future__ import annotations

from eagle_console import disk_documents, journal_copy
from eagle_console.commands.invocation import Invocation
from eagle_console.disk_words import absolute
from eagle_console.exit_codes import ExitCode
from eagle_console.person import person


async def pin(call: Invocation) -> ExitCode:
    async with call.host() as client:
        path = absolute(call.arguments.path, client.hello.workspace)
        answer = await client.pin(path, not call.arguments.remove, person())
        if trouble := await journal_copy.update(client):
            call.out.say(trouble)
    if call.out.json:
        call.out.document(disk_documents.pin(answer))
    words = "is pinned: no prune takes it" if answer.pinned else "is not pinned any more"
    call.out.line(f"{answer.path} {words}")
    return ExitCode.DONE
