"""``explain-log``: a vLLM start-up log read offline: how far it came, how long that took, what went wrong."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import IO

from eagle_console import documents
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, duration, percent
from eagle_console.output import Output
from remote.watch.explain import START_MARKS, START_WITHIN, Explainer, Explanation
from remote.watch.kernel import oom_kill

BLOCK_BYTES = 512 * 1024
_GZIP = b"\x1f\x8b"


async def explain_log(call: Invocation) -> ExitCode:
    """Prints the explanation of a log; no host is asked."""
    arguments = call.arguments
    code = arguments.exit_code
    killed = _oom_kill(arguments.dmesg) if arguments.dmesg else None
    if code is not None and code < 0:
        explained = read(arguments.file).explain(None, -code, killed)
    else:
        explained = read(arguments.file).explain(code, None, killed)
    if call.out.json:
        call.out.document(documents.explanation(explained))
    else:
        _show(explained, call.out)
    return ExitCode.DONE if explained.error is None else ExitCode.FAILED


def read(path: str) -> Explainer:
    """The log that was read: a file, a gzip file, or ``-`` for standard input.

    :raises UsageError: when there is no such file, or it cannot be read.
    """
    explainer = Explainer()
    try:
        if path == "-":
            _feed(explainer, sys.stdin.buffer)
            return explainer
        with open(path, "rb") as file:
            if file.peek(2)[:2] == _GZIP:
                with gzip.open(file) as unpacked:
                    _feed(explainer, unpacked)
                return explainer
            if file.seekable():
                file.seek(_begin_of_last_start(file))
            _feed(explainer, file)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return explainer


def _feed(explainer: Explainer, file: IO[bytes] | gzip.GzipFile) -> None:
    while block := file.read(BLOCK_BYTES):
        explainer.feed(block)
    explainer.end()


def _begin_of_last_start(file: IO[bytes]) -> int:
    """Where to read from: before the last start mark, so that a log of many starts costs no more than one of them."""
    overlap = max(map(len, START_MARKS))
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - BLOCK_BYTES)
        file.seek(begin)
        block = file.read(end - begin + overlap)
        last = max(block.rfind(mark) for mark in START_MARKS)
        if last >= 0:
            return _first_mark_near(file, begin + last)
        end = begin
    return 0


def _first_mark_near(file: IO[bytes], last: int) -> int:
    """The beginning of the line of the first start mark near the last one: a start has several."""
    begin = max(0, last - START_WITHIN)
    if begin == 0:
        return 0
    file.seek(begin)
    window = file.read(last - begin) + START_MARKS[0]
    first = min(place for place in (window.find(mark) for mark in START_MARKS) if place >= 0)
    return begin + window.rfind(b"\n", 0, first) + 1


def _oom_kill(path: str) -> str:
    try:
        with Path(path).open(errors="replace") as file:
            return oom_kill(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _show(explained: Explanation, out: Output) -> None:
    progress = explained.progress
    version = f"vLLM {explained.version}" if explained.version else "vLLM of unknown version"
    out.line(f"{version}, model {explained.model or UNKNOWN}: {explained.state}")
    if progress.phase:
        counted = ""
        if progress.done is not None and progress.total is not None:
            counted = f", {progress.done:g} of {progress.total:g} {progress.unit} ({percent(progress.percent)})"
        after = "" if explained.total_seconds is None else f" after {duration(explained.total_seconds)}"
        reached = "ready" if progress.ready else f"in phase {progress.phase}"
        out.line(f"It came to be {reached}{counted}{after}." if progress.ready else f"It is {reached}{counted}{after}.")
    if explained.seconds:
        out.line()
        rows = [(name, f"{seconds:.1f} s") for name, seconds in explained.seconds.items()]
        out.table(("PHASE", "TIME"), rows, right=(1,))
    if progress.figures:
        out.line()
        out.table(
            ("FIGURE", "VALUE"), [(name, f"{value:,.10g}") for name, value in progress.figures.items()], right=(1,)
        )
    if explained.error is not None:
        out.line()
        out.line(f"{explained.error.klass}: {explained.error.cause}")
        for label, text in (("line", explained.error.line), ("remedy", explained.error.remedy)):
            if text:
                out.line(f"  {label}: {text}")
    if explained.note:
        out.line()
        out.line(f"{explained.note[0].upper()}{explained.note[1:]}.")
