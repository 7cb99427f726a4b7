"""``trash``, ``undo`` and ``purge``: what a prune moved away, its way back, and its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from eagle_console import disk_documents, journal_copy
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation, Refused, UsageError
from eagle_console.disk_words import below, countdown, freed_sentence, in_trash, items_of, receipt_named
from eagle_console.exit_codes import ExitCode
from eagle_console.format import gb, plural, stamp
from eagle_console.output import Output
from eagle_console.person import person
from remote.protocol.trash import PURGED, RESTORED, Receipt, TrashList


async def trash(call: Invocation) -> ExitCode:
    async with call.host() as client:
        listed = await client.trash()
        workspace = client.hello.workspace
    if call.out.json:
        call.out.document(disk_documents.receipts(listed))
    else:
        show(listed, workspace, call.target.profile.name, call.out)
    return ExitCode.FAILED if listed.problem else ExitCode.DONE


def show(listed: TrashList, workspace: str | None, host: str, out: Output) -> None:
    if listed.problem:
        out.line(f"Trash: {listed.problem}")
    if not listed.receipts:
        if not listed.problem:
            out.line("the trash is empty")
        return
    now = time.time()
    rows = [
        (receipt.id, receipt.state.replace("_", " "), stamp(receipt.created), gb(in_trash(receipt)),
         countdown(receipt, now), receipt.who, items_of([item.path for item in receipt.items], workspace))
        for receipt in listed.receipts
    ]  # fmt: skip
    out.table(("RECEIPT", "STATE", "MOVED", "SIZE", "PURGED IN", "BY", "WHAT"), rows, right=(3, 4))
    if listed.left_out:
        out.line(f"{plural(listed.left_out, 'older receipt')} left out")
    out.line(f"{gb(listed.allocated)} in the trash; none of it is freed before a purge")
    out.line(f"  eagle-console undo {host} RECEIPT     purge {host} RECEIPT|--expired")


async def undo(call: Invocation) -> ExitCode:
    """Puts back what a prune moved away; whatever now stands in its place is left alone."""
    async with call.host() as client:
        name = receipt_named(await client.trash(), call.arguments.receipt)
        receipt = await client.undo(name, person())
        await _copy_journal(call, client)
        workspace = client.hello.workspace
    back = [item for item in receipt.items if item.state == RESTORED]
    if call.out.json:
        call.out.document(disk_documents.receipt(receipt))
    for item in receipt.items:
        trouble = "" if item.state == RESTORED else f": {item.problem or 'no reason was given'}"
        word = "back in place" if item.state == RESTORED else item.state.replace("_", " ")
        call.out.line(f"{below(item.path, workspace)}: {word}{trouble}")
    call.out.line(f"{plural(len(back), 'item')} of {len(receipt.items)} back in place")
    return ExitCode.DONE if len(back) == len(receipt.items) else ExitCode.FAILED


async def purge(call: Invocation) -> ExitCode:
    """Unlinks for good what lies in the trash: one receipt, or all that have expired."""
    if bool(call.arguments.receipt) == call.arguments.expired:
        raise UsageError("purge needs a receipt or --expired")
    async with call.host() as client:
        listed = await client.trash()
        going = _going(call, listed)
        if call.arguments.expired and not going:
            if call.out.json:
                call.out.document(disk_documents.receipts(TrashList()))
            call.out.line("nothing in the trash has expired")
            return ExitCode.DONE
        if going:
            aside = replace(call.out, json=False, data=call.out.talk)
            for receipt in going:
                for item in receipt.items:
                    aside.line(f"  {gb(item.allocated):>8}  {below(item.path, client.hello.workspace)}")
            _confirm(call, sum(in_trash(receipt) for receipt in going))
        done = await _purge(call, client, listed)
        await _copy_journal(call, client)
    if call.out.json:
        call.out.document(disk_documents.receipts(done))
    for receipt in done.receipts:
        call.out.line(f"{receipt.id}: {freed_sentence(receipt)}")
        for item in receipt.items:
            if item.problem:
                call.out.line(f"  {item.path}: {item.state.replace('_', ' ')}: {item.problem}")
    return ExitCode.DONE if all(receipt.state == PURGED for receipt in done.receipts) else ExitCode.FAILED


def _going(call: Invocation, listed: TrashList) -> Sequence[Receipt]:
    if call.arguments.expired:
        now = time.time()
        return [receipt for receipt in listed.receipts if receipt.expires is not None and receipt.expires <= now]
    name = receipt_named(listed, call.arguments.receipt)
    return [receipt for receipt in listed.receipts if receipt.id == name]


async def _purge(call: Invocation, client: HostClient, listed: TrashList) -> TrashList:
    if call.arguments.expired:
        return await client.purge_expired(person())
    return await client.purge(receipt_named(listed, call.arguments.receipt), person())


def _confirm(call: Invocation, size: int) -> None:
    """Irreversible: the size is typed, or ``--yes`` was given.

    :raises Refused: when it was not.
    """
    if call.arguments.yes:
        return
    if not sys.stdin.isatty():
        raise Refused("purge needs --yes when stdin is no terminal; nothing was purged")
    call.out.say(f"Nothing brings this back. Type its size, {gb(size)}, to purge it:")
    if sys.stdin.readline().strip() != gb(size):
        raise Refused("nothing was purged")


async def _copy_journal(call: Invocation, client: HostClient) -> None:
    if trouble := await journal_copy.update(client):
        call.out.say(trouble)
