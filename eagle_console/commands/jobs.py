"""``jobs``, ``logs`` and ``stop``: what runs, what it says, and its end."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence

from eagle_console import documents
from eagle_console.adopted import adopted_id, as_job
from eagle_console.client import HostClient
from eagle_console.commands import watch
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, done_of, duration, duration_in_words, gb, moment, percent, plural
from eagle_console.outlook import outlook_words
from eagle_console.output import Output
from pipeline.plan.catalog import STAGES
from remote.protocol.errors import CONFLICT, RequestError
from remote.protocol.jobs import DONE, ENDED_STATES, KIND_TASK, LIVE_STATES, READY, Job, JobList, LogChunk

_POLL_SECONDS = 0.3
DEFAULT_TAIL = 200


async def jobs(call: Invocation) -> ExitCode:
    async with call.host() as client:
        listed = await client.jobs()
    if call.out.json:
        call.out.document({"jobs": [documents.job(job) for job in listed.jobs], "problem": listed.problem})
    else:
        show(listed, call.target.profile.name, call.out)
    return ExitCode.FAILED if listed.problem else ExitCode.DONE


def show(listed: JobList, host: str, out: Output) -> None:
    """The jobs of a host in a table; what is wrong with them, or what to do while there are none."""
    if listed.problem:
        out.line(f"Jobs: {listed.problem}")
    if not listed.jobs:
        if not listed.problem:
            out.line(f"no jobs yet; eagle-console stages {host} lists what can be run")
        return
    now = time.time()
    rows = [
        (job.id, state_word(job), moment(job.created, now), duration(job.seconds), progress_words(job))
        for job in listed.jobs
    ]
    out.table(("JOB", "STATE", "AT", "TIME", "PROGRESS"), rows, right=(3,))


def state_word(job: Job) -> str:
    word = job.state.upper() if job.state in LIVE_STATES else job.state
    return f"{word} REPLAY" if job.simulated else word


def progress_words(job: Job) -> str:
    """Where a job is in one line: phase and count while it runs, the reason once it failed."""
    if job.failure is not None:
        return f"{job.failure.klass}: {job.failure.cause}"
    if job.state in ENDED_STATES:
        return job.note or ("" if job.code is None else f"exit {job.code}")
    words = [job.progress.phase, done_of(job.progress.done, job.progress.total, job.progress.unit)]
    if job.progress.percent is not None:
        words.append(percent(job.progress.percent))
    words += [outlook_words(job.progress, DONE if job.kind == KIND_TASK else READY), job.note]
    return "  ".join(filter(None, words))


async def logs(call: Invocation) -> ExitCode:
    pattern = _pattern(call.arguments.grep)
    if call.arguments.follow:
        await call.follow(lambda client: _follow(call, client, pattern))
        return ExitCode.DONE
    async with call.host() as client:
        name = adopted_id(call.arguments.job) or call.arguments.job
        chunks = [chunk async for chunk in _tail(client, name, _tail_lines(call), call.arguments.since)]
    _say_note(call, chunks[0])
    if left_out := words_of_what_is_left_out(chunks, _tail_lines(call)):
        call.out.say(left_out)
    lines = [line for chunk in chunks for line in chunk.lines if pattern is None or pattern.search(line)]
    if call.out.json:
        call.out.document({"job": chunks[0].job, "size": chunks[0].size, "lines": lines})
    for line in lines:
        call.out.line(line)
    return ExitCode.DONE


def words_of_what_is_left_out(chunks: Sequence[LogChunk], wanted: int | None) -> str:
    """A sentence where fewer lines came than were wanted although the log has more before them; else empty."""
    read, before = sum(len(chunk.lines) for chunk in chunks), chunks[0].offset
    if wanted is None or read >= wanted or before == 0:
        return ""
    return f"only the last {plural(read, 'line')} were read: the {gb(before)} before them are too much at once"


def _tail_lines(call: Invocation) -> int | None:
    """How many lines are wanted; None for all since a time."""
    if call.arguments.tail is None and call.arguments.since is None:
        return DEFAULT_TAIL
    tail: int | None = call.arguments.tail
    return tail


def _say_note(call: Invocation, chunk: LogChunk) -> None:
    if chunk.note:
        call.out.say(chunk.note)


async def _tail(client: HostClient, name: str, tail: int | None, since: str | None) -> AsyncIterator[LogChunk]:
    """The last ``tail`` lines of a log as it is now, or those since a time; many lines come in several pieces."""
    chunk = first = await client.read_log(name, tail=tail, since=since)
    yield chunk
    while chunk.lines and chunk.next_offset < first.size:
        chunk = await client.read_log(first.job, offset=chunk.next_offset)
        yield chunk


async def _follow(call: Invocation, client: HostClient, pattern: re.Pattern[str] | None) -> None:
    """Prints what is appended until the job has ended and everything was printed."""
    job = await _find(client, call.arguments.job)
    printed = 0

    async def pump() -> None:
        nonlocal printed
        async for chunk in client.follow_log(job.id, _tail_lines(call), call.arguments.since):
            _say_note(call, chunk)
            for line in chunk.lines:
                if pattern is None or pattern.search(line):
                    if call.out.json:
                        call.out.document({"job": job.id, "line": line})
                    else:
                        call.out.line(line)
            printed = chunk.next_offset

    pumping = asyncio.create_task(pump())
    try:
        while not pumping.done():
            await asyncio.wait([pumping], timeout=1.0)
            job = await _find(client, job.id)
            if job.state in ENDED_STATES:
                size = (await client.read_log(job.id, tail=1)).size
                while printed < size and not pumping.done():
                    await asyncio.wait([pumping], timeout=_POLL_SECONDS)
                return
        pumping.result()
    finally:
        pumping.cancel()


async def _find(client: HostClient, word: str) -> Job:
    """The job, or the adopted program, that a person means."""
    return as_job(await watch.find(client, word)) if adopted_id(word) else await client.job(word)


async def stop(call: Invocation) -> ExitCode:
    """Ends a job and waits until it has ended; what is lost is said before."""
    if adopted_id(call.arguments.job):
        return await watch.stop(call)
    if call.arguments.name is not None:
        raise UsageError("--name is for what is not ours (a pid or adopted-PID); a job of ours needs --yes")
    async with call.host() as client:
        job = await client.job(call.arguments.job)
        if job.state not in LIVE_STATES:
            raise RequestError(CONFLICT, f"{job.id} has already ended: {job.state}")
        costs = next((stage.stop_costs for stage in STAGES if stage.name == job.stage), "")
        loses = f" and loses {costs}" if costs else ""
        running = duration_in_words(job.seconds)
        call.confirm(f"Stopping {job.id} ends a {job.kind} that has run for {running}{loses}. Stop it?", "stop")
        await client.stop(job.id, requested_by="command line", force=call.arguments.force)
        call.out.say(f"asked {job.id} to stop")
        job = await _until_ended(client, job.id)
    if call.out.json:
        call.out.document(documents.job(job))
    call.out.line(f"{job.id} {job.state}, exit code {UNKNOWN if job.code is None else job.code}")
    if job.pids:
        call.out.say(f"processes that could not be ended: {', '.join(map(str, job.pids))}")
    return ExitCode.FAILED if job.pids else ExitCode.DONE


async def _until_ended(client: HostClient, job_id: str) -> Job:
    while True:
        job = await client.job(job_id)
        if job.state in ENDED_STATES:
            return job
        await asyncio.sleep(_POLL_SECONDS)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep {text!r} is not a regular expression: {error}") from None
