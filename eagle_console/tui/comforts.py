"""What the screen does beside watching: lends its terminal to a shell, forwards ports, copies command lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from eagle_console.forward_target import port_of, url_of
from eagle_console.link.connect import LOCAL
from eagle_console.link.errors import LinkError
from eagle_console.link.forwarding import PortForward
from eagle_console.state import HostState
from eagle_console.text import clean
from eagle_console.tui.link import HOST_ERRORS, HostLink, explain
from remote.protocol.errors import RequestError
from remote.protocol.jobs import LIVE_STATES, Job

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

COMMAND_LINE_LIMIT = 64_000


async def lend_terminal(app: ConsoleApp, link: HostLink) -> None:
    """A login shell on the host in place of the screen. The link goes on meanwhile, and nothing is painted."""
    trouble = ""
    try:
        transport = link.transport
        with app.suspend(), app.batch_update():
            # Nothing may leave this block as an error: the screen would not come back.
            try:
                sys.stdout.write(f"A shell on {clean(app.state.name, 80)}; its end brings the screen back.\n")
                sys.stdout.flush()
                await transport.shell(())
            except LinkError as error:
                trouble = explain(error)
    except SuspendNotSupported:
        trouble = "This terminal cannot be lent to a shell."
    except LinkError as error:
        trouble = explain(error)
    if trouble:
        app.say(trouble, "error")


async def copy_command_line(app: ConsoleApp, job: Job) -> None:
    """Puts the job's command line on the clipboard of the terminal."""
    client = app.client
    if not job.command_line and client is not None:  # the list of jobs leaves it out of old ones
        try:
            job = await client.job(job.id)
        except HOST_ERRORS as error:
            app.say(explain(error), "error")
            return
    text = clean(job.command_line, COMMAND_LINE_LIMIT)
    if not text:
        app.say(f"{job.id} has no command line that is known here.", "warning")
        return
    app.copy_to_clipboard(text)
    app.say(f"Copied the command line of {job.id}, {len(text)} characters. Some terminals ignore this (OSC 52).")


class Forwards:
    """The ports of this screen, by job. They end with the screen."""

    def __init__(self) -> None:
        self._open: dict[str, PortForward] = {}

    async def toggle(self, app: ConsoleApp, link: HostLink, job: Job) -> None:
        """Forwards the job's server to a local port, or ends that."""
        if job.id in self._open:
            await self._open.pop(job.id).close()
            app.say(f"The server of {job.id} is no longer on a port here.")
            return
        try:
            forward = PortForward(port_of(job), lambda: link.transport)
            if app.profile.address == LOCAL:
                app.say(f"{job.id} runs on this machine: {url_of(forward.port)}")
                return
            self._open[job.id] = forward
            answers = await forward.probe()
            local = await forward.start()
        except (LinkError, RequestError, OSError) as error:
            self._open.pop(job.id, None)
            app.say(explain(error), "error")
            return
        waits = "" if answers else f" Nothing answers there yet: it is {job.state}."
        app.say(f"The server of {job.id} is at {url_of(local)} until F or the end of the screen.{waits}")

    async def close_ended(self, app: ConsoleApp, state: HostState) -> None:
        """Ends the forwards of jobs that have ended."""
        for job_id in list(self._open):
            job = state.job(job_id)
            if job is not None and job.state not in LIVE_STATES:
                await self._open.pop(job_id).close()
                app.say(f"{job_id} has ended ({job.state}), and its port here with it.")

    async def close(self) -> None:
        """Ends all."""
        while self._open:
            await self._open.popitem()[1].close()
