"""``watch``, and what ``logs`` and ``stop`` do for what runs without being ours: read-only, but for a typed name."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from eagle_console import documents
from eagle_console.adopted import NOT_OURS, adopted_id, progress_words, serving_words, training_words
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation, Refused, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, done_of, duration, duration_in_words, percent
from eagle_console.output import Output
from remote.protocol.adopted import KIND_TRAINING, Adopted
from remote.protocol.errors import CONFLICT, NOT_FOUND, RequestError
from remote.protocol.jobs import ENDED_STATES, GONE, READY

POLL_SECONDS = 0.5


def show(records: tuple[Adopted, ...], out: Output) -> None:
    """A table of what runs without being ours."""
    out.line(f"Running here, {NOT_OURS}:")
    rows = [_row(record) for record in records]
    out.table(("ID", "NAME", "KIND", "STATE", "USER", "TIME", "PROGRESS", "LOG"), rows, right=(5,))


def _row(record: Adopted) -> tuple[str, ...]:
    return (
        record.id,
        record.name,
        record.kind,
        record.state if record.state in ENDED_STATES else record.state.upper(),
        record.user or UNKNOWN,
        duration(record.seconds),
        progress_words(record),
        record.log or record.log_note,
    )


async def watch(call: Invocation) -> ExitCode:
    """Follows a program that we did not start until it ends; nothing of it is changed."""
    arguments = call.arguments
    if arguments.log is None and arguments.pid is None:
        raise UsageError("watch needs --log FILE, --pid N, or both")
    return await call.follow(lambda client: _follow(call, client))


async def _follow(call: Invocation, client: HostClient) -> ExitCode:
    printer = _Printer(call.out)
    record: Adopted | None = None
    while True:
        try:
            record = await client.adopt(call.arguments.log, call.arguments.pid)
        except RequestError as error:
            if error.code != NOT_FOUND or record is None:
                raise
            # It ended while the link was down: the agent that knew it is gone too.
            call.out.say(f"{record.id} has ended meanwhile; how is not known")
            return ExitCode.DONE
        printer.show(record)
        if record.state in ENDED_STATES:
            return _report_end(call, record)
        if call.arguments.until_ready and (record.state == READY or record.progress.ready):
            call.out.line(f"{record.name} is ready")
            return ExitCode.DONE
        await asyncio.sleep(POLL_SECONDS)


def _report_end(call: Invocation, record: Adopted) -> ExitCode:
    failure = record.failure
    if failure is not None:
        call.out.say(f"{failure.klass}: {failure.cause}")
        for text in (failure.line, failure.remedy):
            if text:
                call.out.say(f"  {text}")
    how = "; only its parent knows its exit code" if failure is None and record.state == GONE else ""
    call.out.line(f"{record.id} {record.state} after {duration(record.seconds)}{how}")
    return ExitCode.FAILED if failure is not None else ExitCode.DONE


class _Printer:
    """Prints what changed since the last picture: phases and counts of a load, steps of a training run."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._introduced = False
        self._phases: set[str] = set()
        self._said = ""
        self._last: Adopted | None = None

    def show(self, record: Adopted) -> None:
        if self._out.json:
            steady = replace(record, seconds=None)
            if steady != self._last:
                self._last = steady
                self._out.document(documents.adopted(record))
            return
        if not self._introduced:
            self._introduced = True
            self._introduce(record)
        for phase in record.progress.phases:
            if phase.name not in self._phases:
                self._phases.add(phase.name)
                self._out.say(
                    f"{duration(phase.start):>7}  {phase.name}" + (f"  {phase.detail}" if phase.detail else "")
                )
        self._say(record, _latest(record))

    def _introduce(self, record: Adopted) -> None:
        who = f"{record.user}'s " if record.user else ""
        self._out.say(f"watching {who}{record.kind} {record.name} ({record.id}), {NOT_OURS}: it is left alone")
        if record.command_line:
            self._out.say(f"  {record.command_line}")
        self._out.say(f"  log: {record.log} ({record.log_note})" if record.log else f"  no log: {record.log_note}")

    def _say(self, record: Adopted, words: str) -> None:
        if words and words != self._said:
            self._said = words
            self._out.say(f"{duration(record.seconds):>7}    {words}")


def _latest(record: Adopted) -> str:
    """The line that follows the counts."""
    if record.problem:
        return f"its log cannot be read: {record.problem}"
    if record.training is not None:
        return training_words(record.training)
    if record.serving is not None:
        return "; ".join(serving_words(record.serving))
    told = record.progress
    if told.done is None:
        return ""
    share = "" if told.percent is None else f"  {percent(told.percent)}"
    return f"{told.phase}  {done_of(told.done, told.total, told.unit)}{share}"


async def find(client: HostClient, word: str) -> Adopted:
    """The adopted program that a person means.

    :raises RequestError: ``not_found``, naming what there is.
    """
    wanted = adopted_id(word)
    records = (await client.adopted()).records
    for record in records:
        if record.id == wanted:
            return record
    there = ", ".join(f"{record.id} ({record.name})" for record in records) or "none"
    raise RequestError(NOT_FOUND, f"nothing that runs here, and is {NOT_OURS}, is {word}; there are: {there}")


async def stop(call: Invocation) -> ExitCode:
    """Ends a program that is not ours, once its name was typed, and waits until it has ended."""
    async with call.host() as client:
        record = await find(client, call.arguments.job)
        if record.state in ENDED_STATES:
            raise RequestError(CONFLICT, f"{record.id} has already ended: {record.state}")
        typed = call.arguments.name if call.arguments.name is not None else _typed_name(call, record)
        await client.stop_adopted(record, typed, "command line")
        call.out.say(f"asked {record.id} to stop")
        record = await _until_ended(client, record)
    if call.out.json:
        call.out.document(documents.adopted(record))
    call.out.line(f"{record.id} {record.state}: {record.note}")
    left = [str(process.pid) for process in record.processes]
    if left:
        call.out.say(f"processes that could not be ended: {', '.join(left)}")
    return ExitCode.FAILED if left else ExitCode.DONE


def _typed_name(call: Invocation, record: Adopted) -> str:
    """Asks for the name on a terminal; without one it must have been given with ``--name``.

    :raises Refused: when nothing was typed. ``--yes`` is no name.
    """
    if not sys.stdin.isatty():
        raise Refused(f"{record.id} is {NOT_OURS}: stopping it needs --name with its name; nothing was done")
    lost = "work" if record.kind == KIND_TRAINING else "loading and serving"
    running = duration_in_words(record.seconds)
    call.out.say(
        f"{record.id} is {NOT_OURS}: {record.user or 'somebody'} started it. Stopping loses {running} of {lost}."
    )
    call.out.say(f"Type its name, {record.name}, to stop it: ")
    typed = sys.stdin.readline().strip()
    if not typed:
        raise Refused("nothing was done")
    return typed


async def _until_ended(client: HostClient, record: Adopted) -> Adopted:
    while record.state not in ENDED_STATES:
        await asyncio.sleep(POLL_SECONDS)
        record = await find(client, record.id)
    return record
