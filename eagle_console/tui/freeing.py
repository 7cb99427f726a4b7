"""Freeing GPUs from the screen: who holds them, one dialog, then the host's report as it grows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from eagle_console.client import HostClient
from eagle_console.gpu_freeing import succeeded
from eagle_console.text import clean
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.free_dialog import Choice, FreeDialog, FreeingDialog

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

POLL_SECONDS = 0.5


def free(app: ConsoleApp, pid: int | None) -> None:
    """Opens the dialog; what is confirmed in it is ended.

    :param pid: the row that the person stands on.
    """
    client = app.client
    if client is None:
        app.say("There is no connection to the host: R tries again now.", "warning")
    elif app.state.readonly:
        app.say("This host is read-only: nothing can be ended from here.", "warning")
    else:
        app.run_worker(_free(app, client, pid), group="free", exclusive=True)


async def _free(app: ConsoleApp, client: HostClient, pid: int | None) -> None:
    try:
        found = await client.gpu_holders()
        if found.simulated:
            app.say("These GPUs are simulated: nothing holds their memory.", "warning")
            return
        if found.problem:
            app.say(f"The GPUs cannot be read: {clean(found.problem)}", "error")
            return
        choice = await app.push_screen_wait(FreeDialog(found, pid))
        if choice is not None:
            await _end(app, client, choice)
    except HOST_ERRORS as error:
        app.say(explain(error), "error")


async def _end(app: ConsoleApp, client: HostClient, choice: Choice) -> None:
    report = await client.free_gpus(choice.holders, choice.force, app.requested_by)
    dialog = FreeingDialog(report)
    app.push_screen(dialog)
    while report.running:
        await asyncio.sleep(POLL_SECONDS)
        report = await client.free_report(report.id)
        dialog.show(report)
    if succeeded(report, choice.holders):
        app.say(f"The GPUs are free after {report.seconds:.1f} s.")
    else:
        app.say("Not everything came free: gpus free HOST, or D here, says what is left.", "warning")
