"""``run``: launches a stage, and follows it until a service is ready or a task has ended."""

from __future__ import annotations

import asyncio
import getpass
import socket
import uuid

from eagle_console import documents
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.commands.jobs import progress_words
from eagle_console.commands.stages import show_checks
from eagle_console.exit_codes import ExitCode
from eagle_console.format import duration
from eagle_console.link.connect import connect
from eagle_console.link.errors import ConnectError, ConnectionLost
from pipeline.plan.catalog import stage_named
from remote.protocol.jobs import DONE, ENDED_STATES, KIND_SERVICE, READY, Job, JobEvent
from remote.protocol.stages import LaunchRequest

RECIPES = ("classic", "one-pass")
_RECONNECT_SECONDS = 2.0


async def run(call: Invocation) -> ExitCode:
    request = _request(call)
    async with call.host() as client:
        if call.arguments.dry_run:
            return await _show_plan(call, client, request)
        if request.force:
            call.confirm(f"Launch {request.stage} although {', '.join(request.force)} says no?", "--force")
        job = await client.launch(request, key=uuid.uuid4().hex)
        call.out.say(f"launched {job.id}" + ("  REPLAY of a recorded run" if job.simulated else ""))
        call.out.say(f"  {job.command_line}")
        if call.arguments.follow:
            follower = _Follower(call, job.id)
            try:
                await follower.until_settled(client)
            except (ConnectionLost, ConnectError) as lost:
                call.out.say(f"connection lost ({lost}); {job.id} goes on, connecting again")
                await follower.reconnect()
            job = follower.job
    return _report(call, job)


def _request(call: Invocation) -> LaunchRequest:
    name = call.arguments.stage
    if name in RECIPES:
        raise UsageError(f"the recipe {name} is not in this version yet; eagle-console stages HOST lists what there is")
    try:
        stage_named(name)
    except KeyError as error:
        raise UsageError(str(error.args[0])) from None
    parameters = {}
    for pair in call.arguments.parameters:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{pair!r} is not key=value")
        parameters[key] = value
    return LaunchRequest(
        stage=name,
        parameters=parameters,
        context=call.target.profile.context,
        requested_by=f"{getpass.getuser()} at {socket.gethostname()}",
        force=tuple(call.arguments.force),
    )


async def _show_plan(call: Invocation, client: HostClient, request: LaunchRequest) -> ExitCode:
    plan = await client.plan(request)
    if call.out.json:
        call.out.document({"dry_run": True, **documents.stage(plan)})
    call.out.line(plan.command_line)
    show_checks(plan, call.out)
    return ExitCode.DONE


def _report(call: Invocation, job: Job) -> ExitCode:
    if call.out.json:
        call.out.document(documents.job(job))
    if job.failure is not None:
        call.out.say(f"{job.failure.klass}: {job.failure.cause}")
        if job.failure.line:
            call.out.say(f"  {job.failure.line}")
        if job.failure.remedy:
            call.out.say(f"  {job.failure.remedy}")
    if not call.arguments.follow:
        call.out.line(job.id)
        return ExitCode.DONE
    if job.state == READY:
        call.out.line(f"{job.id} is ready after {duration(job.seconds)}: {job.health_url or ''}")
        return ExitCode.DONE
    call.out.line(f"{job.id} {job.state} after {duration(job.seconds)}")
    return ExitCode.DONE if job.state == DONE else ExitCode.FAILED


class _Follower:
    """Prints a job's events and counts as they come, across connections, until there is nothing left to wait for."""

    def __init__(self, call: Invocation, job_id: str) -> None:
        self._call = call
        self._job_id = job_id
        self._seq = 0
        self._shown = ""
        self.job: Job

    async def until_settled(self, client: HostClient) -> None:
        """Returns when a service is ready or has ended, a task when it has ended."""
        events = asyncio.create_task(self._print_events(client))
        try:
            while not self._settled(await client.job(self._job_id)):
                self._print_count()
                if events.done():
                    events.result()
                await asyncio.sleep(0.5)
        finally:
            events.cancel()
        for event in await _remaining(client, self._job_id, self._seq):
            self._print_event(event)

    async def reconnect(self) -> None:
        """Goes on following over new connections until settled; ends with the command only."""
        while True:
            await asyncio.sleep(_RECONNECT_SECONDS)
            try:
                async with connect(self._call.target, self._call.timeout) as client:
                    await self.until_settled(client)
                    return
            except (ConnectionLost, ConnectError) as lost:
                self._call.out.say(f"not connected: {lost}; trying again")

    def _settled(self, job: Job) -> bool:
        self.job = job
        return job.state in ENDED_STATES or (job.kind == KIND_SERVICE and job.state == READY)

    async def _print_events(self, client: HostClient) -> None:
        async for event in client.events(self._job_id, after=self._seq):
            self._print_event(event)

    def _print_event(self, event: JobEvent) -> None:
        if event.seq > self._seq:
            self._seq = event.seq
            seconds = event.wall - (self.job.started or self.job.created)
            self._call.out.say(f"{duration(seconds):>7}  {event.text}")

    def _print_count(self) -> None:
        if self.job.progress.done is not None and (words := progress_words(self.job)) != self._shown:
            self._shown = words
            self._call.out.say(f"{duration(self.job.seconds):>7}    {words}")


async def _remaining(client: HostClient, job_id: str, after: int) -> list[JobEvent]:
    """The events that were written between the last printed one and now."""
    found: list[JobEvent] = []
    try:
        async with asyncio.timeout(0.6):
            async for event in client.events(job_id, after=after):
                found.append(event)
    except TimeoutError:
        pass
    return found
