"""Pruning from the screen: a plan, one dialog that shows all of it, the commit, and its undo.

The host makes the plan and judges it again at the commit; nothing here decides what may go.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from eagle_console import format as fmt
from eagle_console import journal_copy
from eagle_console.client import HostClient
from eagle_console.disk_words import freed_sentence
from eagle_console.text import clean
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.screens.prune_dialog import PruneDialog
from eagle_console.tui.screens.purge_dialog import PurgeDialog
from remote.protocol.artifacts import LEVEL_WHOLE
from remote.protocol.trash import PURGED, RESTORED, TRASHED, Plan, Receipt, ReceiptItem

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What a person wants to prune: paths by name, or a run as the recommended policy says."""

    title: str
    paths: tuple[str, ...] = ()
    run: str = ""
    level: str = LEVEL_WHOLE


def prune(app: ConsoleApp, wish: Wish) -> None:
    """Opens the dialog of a plan; the plan is carried out where it is confirmed."""
    client = app.client
    if client is not None:
        app.run_worker(_propose(app, client, wish), group="plan", exclusive=True)


def undo(app: ConsoleApp, receipt: Receipt | None = None) -> None:
    """Brings back what a receipt moved away, or the newest one."""
    client = app.client
    if client is not None:
        app.run_worker(_undo(app, client, receipt), group="change")


def purge(app: ConsoleApp, receipt: Receipt) -> None:
    """Opens the dialog that wants the size typed; then frees what the receipt has in the trash."""
    client = app.client
    if client is not None:
        app.push_screen(
            PurgeDialog(receipt, app.state.hello.workspace if app.state.hello else None),
            lambda go: _start_purge(app, client, receipt) if go else None,
        )


def pin(app: ConsoleApp, path: str, pinned: bool) -> None:
    """Protects a path, or lets go of it."""
    client = app.client
    if client is not None:
        app.run_worker(_pin(app, client, path, pinned), group="change")


def _start_purge(app: ConsoleApp, client: HostClient, receipt: Receipt) -> None:
    app.run_worker(_purge(app, client, receipt), group="change")


async def _propose(app: ConsoleApp, client: HostClient, wish: Wish) -> None:
    while True:
        plan = await _told(app, _plan(client, wish))
        if plan is None:
            return
        workspace = app.state.hello.workspace if app.state.hello else None
        choice = await app.push_screen_wait(PruneDialog(wish.title, plan, wish.level, workspace))
        if choice.level:
            wish = replace(wish, level=choice.level)
            continue
        if choice.go:
            app.run_worker(_commit(app, client, plan, choice.typed), group="change")
        return


async def _plan(client: HostClient, wish: Wish) -> Plan:
    if wish.run:
        return await client.plan_recommended(wish.run, wish.level)
    return await client.plan_prune(wish.paths, wish.level)


async def _commit(app: ConsoleApp, client: HostClient, plan: Plan, typed: str) -> None:
    receipt = await _told(app, client.prune(plan, typed, app.requested_by))
    if receipt is not None:
        moved = sum(item.state == TRASHED for item in receipt.items)
        if moved:
            app.say(f"{fmt.plural(moved, 'item')} in the trash. {freed_sentence(receipt)}. u undoes.")
        _tell_of_the_rest(app, [item for item in receipt.items if item.state != TRASHED])
    await _changed(app, client)


async def _undo(app: ConsoleApp, client: HostClient, receipt: Receipt | None) -> None:
    if receipt is None:
        trash = await _told(app, client.trash())
        if trash is None:
            return
        receipt = next((one for one in trash.receipts if one.state == TRASHED), None)
        if receipt is None:
            app.say("There is nothing in the trash to bring back.", "warning")
            return
    undone = await _told(app, client.undo(receipt.id, app.requested_by))
    if undone is not None:
        back = sum(item.state == RESTORED for item in undone.items)
        app.say(f"{fmt.plural(back, 'item')} of {len(undone.items)} back in place.")
        _tell_of_the_rest(app, [item for item in undone.items if item.state != RESTORED])
    await _changed(app, client)


async def _purge(app: ConsoleApp, client: HostClient, receipt: Receipt) -> None:
    done = await _told(app, client.purge(receipt.id, app.requested_by))
    for purged in done.receipts if done is not None else ():
        app.say(f"{purged.id}: {freed_sentence(purged)}", "information" if purged.state == PURGED else "warning")
        _tell_of_the_rest(app, [item for item in purged.items if item.problem])
    await _changed(app, client)


async def _pin(app: ConsoleApp, client: HostClient, path: str, pinned: bool) -> None:
    answer = await _told(app, client.pin(path, pinned, app.requested_by))
    if answer is not None:
        app.say(f"{answer.path} {'is pinned: no prune takes it' if answer.pinned else 'is not pinned any more'}.")
    await _changed(app, client)


async def _told(app: ConsoleApp, work: Awaitable[T]) -> T | None:
    """What the host answers; None once the person was told why it does not."""
    try:
        return await work
    except HOST_ERRORS as error:
        app.say(explain(error), "error")
        return None


async def _changed(app: ConsoleApp, client: HostClient) -> None:
    """Looks again, and copies the journal that tells of the change."""
    for screen in app.screen_stack:
        if isinstance(screen, AskingScreen):
            screen.look_again()
    if trouble := await journal_copy.update(client):
        app.say(trouble, "warning")


def _tell_of_the_rest(app: ConsoleApp, items: list[ReceiptItem]) -> None:
    if items:
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        first = f"{clean(items[0].path, 200)}{more}: {items[0].state.replace('_', ' ')}"
        app.say(f"{first}: {clean(items[0].problem) or 'no reason was given'}", "warning")
