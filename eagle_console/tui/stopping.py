"""Stopping from the screen: the dialog of a job's own grade of risk, and the request to the host."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from eagle_console.client import HostClient
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.adopted_dialog import StopAdoptedDialog
from eagle_console.tui.screens.dialogs import StopDialog
from remote.protocol.adopted import Adopted, is_adopted
from remote.protocol.jobs import LIVE_STATES, STOPPING, Job

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

NO_JOB = "No job is selected: key 2 lists them."


def ask(app: ConsoleApp, job: Job | None) -> None:
    """Opens the dialog that stops a job, or says why that makes no sense."""
    if job is None:
        app.say(NO_JOB, "warning")
    elif job.state not in LIVE_STATES:
        app.say(f"{job.id} is not running: {job.state}.", "warning")
    elif app.state.readonly:
        app.say("This host is read-only: nothing can be stopped from here.", "warning")
    elif is_adopted(job.id):
        _ask_about_adopted(app, job)
    else:
        dialog = StopDialog(job, app.view().seconds(job))
        app.push_screen(dialog, lambda stop: _send(app, lambda client: _stop(app, client, job)) if stop else None)


def _ask_about_adopted(app: ConsoleApp, job: Job) -> None:
    record = app.state.adopted_record(job.id)
    if record is None or record.main is None:
        app.say(f"{job.id} is a log without a process: there is nothing to stop.", "warning")
    elif not record.own:
        app.say(f"{job.id} belongs to {record.user or 'another user'}: it cannot be stopped from here.", "warning")
    elif record.state == STOPPING:
        app.say(f"{job.id} was asked to stop already: {record.note}", "warning")
    else:
        dialog = StopAdoptedDialog(record, app.view().seconds(job))
        app.push_screen(
            dialog,
            lambda typed: _send(app, lambda client: _stop_adopted(app, client, record, typed)) if typed else None,
        )


def _send(app: ConsoleApp, request: Callable[[HostClient], Coroutine[Any, Any, None]]) -> None:
    client = app.client
    if client is None:
        app.say("There is no connection to the host: nothing was stopped.", "error")
    else:
        app.run_worker(request(client), group="stop")


async def _stop(app: ConsoleApp, client: HostClient, job: Job) -> None:
    try:
        answer = await client.stop(job.id, app.requested_by, force=job.state == STOPPING)
    except HOST_ERRORS as error:
        app.say(explain(error), "error")
    else:
        app.say(f"{answer.id}: {answer.state}.")


async def _stop_adopted(app: ConsoleApp, client: HostClient, record: Adopted, typed: str) -> None:
    try:
        answer = await client.stop_adopted(record, typed, app.requested_by)
    except HOST_ERRORS as error:
        app.say(explain(error), "error")
    else:
        app.say(f"{answer.name}: {answer.state}.")
