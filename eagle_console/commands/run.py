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
from pipeline.plan.catalog import stage_named
from pipeline.plan.recipes import ALIASES
from remote.protocol.jobs import DONE, ENDED_STATES, EVENT_ENDED, EVENT_READY, GONE, KIND_SERVICE, READY, Job
from remote.protocol.stages import LaunchRequest

_POLL_SECONDS = 0.5
_LAST_EVENT_SECONDS = 10.0
"""For the event of a settled job; over a bad network it may come behind the job's state."""


async def run(call: Invocation) -> ExitCode:
    request = _request(call)
    if call.arguments.dry_run:
        async with call.host() as client:
            return await _show_plan(call, client, request)
    if call.arguments.follow:
        return await call.follow(lambda client: _launch_and_follow(call, client, request))
    async with call.host() as client:
        return _report(call, await _launch(call, client, request))


async def _launch(call: Invocation, client: HostClient, request: LaunchRequest) -> Job:
    if request.force:
        call.confirm(f"Launch {request.stage} although {', '.join(request.force)} says no?", "--force")
    job = await client.launch(request, key=uuid.uuid4().hex)
    call.out.say(f"launched {job.id}" + ("  REPLAY of a recorded run" if job.simulated else ""))
    call.out.say(f"  {job.command_line}")
    return job


async def _launch_and_follow(call: Invocation, client: HostClient, request: LaunchRequest) -> ExitCode:
    job = await _launch(call, client, request)
    try:
        return _report(call, await _Follower(call, client, job).until_settled())
    except asyncio.CancelledError:
        call.out.say(f"{job.id} goes on; eagle-console stop {call.target.profile.name} {job.id} ends it")
        raise


def _request(call: Invocation) -> LaunchRequest:
    name = ALIASES.get(call.arguments.stage, call.arguments.stage)
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
    for line in plan.command_line.splitlines():
        call.out.line(line)
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
    """Prints a job's events and counts as they come, until there is nothing left to wait for."""

    def __init__(self, call: Invocation, client: HostClient, job: Job) -> None:
        self._call, self._client, self._job = call, client, job
        self._shown = ""
        self._came = {EVENT_READY: asyncio.Event(), EVENT_ENDED: asyncio.Event()}

    async def until_settled(self) -> Job:
        """The job when a service is ready or has ended, a task when it has ended."""
        events = asyncio.create_task(self._print_events())
        try:
            while not _settled(self._job):
                self._print_count()
                if events.done():
                    events.result()
                await asyncio.sleep(_POLL_SECONDS)
                self._job = await self._client.job(self._job.id)
            if self._job.state != GONE:  # of which nobody was there to write the end
                await self._last_event(EVENT_READY if self._job.state == READY else EVENT_ENDED)
        finally:
            events.cancel()
        return self._job

    async def _last_event(self, kind: str) -> None:
        try:
            async with asyncio.timeout(_LAST_EVENT_SECONDS):
                await self._came[kind].wait()
        except TimeoutError:
            pass  # the job's record says how it ended

    async def _print_events(self) -> None:
        async for event in self._client.events(self._job.id):
            seconds = max(0.0, event.wall - (self._job.started or self._job.created))  # that clock may be set
            self._call.out.say(f"{duration(seconds):>7}  {event.text}")
            if event.kind in self._came:
                self._came[event.kind].set()

    def _print_count(self) -> None:
        if self._job.progress.done is not None and (words := progress_words(self._job)) != self._shown:
            self._shown = words
            self._call.out.say(f"{duration(self._job.seconds):>7}    {words}")


def _settled(job: Job) -> bool:
    return job.state in ENDED_STATES or (job.kind == KIND_SERVICE and job.state == READY)
