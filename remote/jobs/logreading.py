"""Reading a job's log by offset or from its end, in pieces that always fit into one frame of the wire.

Offsets are byte offsets into the file and exact: a reader that goes on from ``next_offset`` sees every byte once,
wherever a piece was cut.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from dataclasses import dataclass

from remote.jobs.records import open_regular
from remote.protocol.jobs import LogChunk

READ_BYTES = 128 * 1024
FRAME_BUDGET = 200 * 1024  # of the 256 KiB of a frame, for the encoded lines
LONG_LINE_BYTES = 32 * 1024  # a piece of a longer line: JSON writes a byte as six characters at worst
TAIL_BYTES = 8 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class _Line:
    start: int
    end: int
    next: int


def read(path: str, job: str, offset: int, complete: bool, max_bytes: int = READ_BYTES) -> LogChunk:
    """The lines from byte ``offset`` on, as many as fit.

    A last line without its end is held back while it may still grow.

    :param complete: the job has ended, so that the last line is all there will be.
    :raises OSError: when the log is there and cannot be read; a log that is not there yet is empty.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return LogChunk(job, 0, 0, 0, ())
    with open(descriptor, "rb", buffering=0):
        status = os.fstat(descriptor)
        size = status.st_size
        start = min(max(0, offset), size)
        skip = _inside_line_end(descriptor, start)
        limit = min(max(max_bytes, 1), READ_BYTES)
        data = os.pread(descriptor, limit, start + skip)
    at_end = start + skip + len(data) >= size
    lines, used = _fitting(data, final=complete and at_end, full=len(data) >= limit)
    following = start + skip + used
    wall = status.st_mtime if following >= size else None
    return LogChunk(job, start, following, size, tuple(lines), wall)


def tail_offset(path: str, count: int, complete: bool) -> int:
    """The offset at which the last ``count`` lines begin, read from the end of the file.

    Of lines that fill more than a few megabytes, those that begin within these.

    :raises OSError: when the log is there and cannot be read.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return 0
    with open(descriptor, "rb", buffering=0):
        size = os.fstat(descriptor).st_size
        length = 64 * 1024
        while True:
            start = max(0, size - length)
            data = os.pread(descriptor, size - start, start)
            lines = _split(data, final=complete)
            if len(lines) > count or start == 0 or length >= TAIL_BYTES:
                break
            length *= 4
    if start > 0:
        lines = lines[1:]  # cut at its beginning, unless it is the only one
    if count <= 0 or not lines:
        return size if count <= 0 else start
    return start + lines[-min(count, len(lines))].start


def line_start(path: str, offset: int) -> int:
    """The beginning of the line that ``offset`` lies in; of a line of more than 64 KiB, ``offset`` itself.

    :raises OSError: when the log is there and cannot be read.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return 0
    with open(descriptor, "rb", buffering=0):
        begin = max(0, offset - 64 * 1024)
        before = os.pread(descriptor, offset - begin, begin)
    if begin + len(before) < offset:
        return offset  # the log is shorter than that
    end = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
    return begin + end if end or begin == 0 else offset


def _inside_line_end(descriptor: int, offset: int) -> int:
    """1 when ``offset`` lies between the two bytes of a ``\\r\\n`` whose line was given out at the ``\\r``."""
    return 1 if offset > 0 and os.pread(descriptor, 2, offset - 1) == b"\r\n" else 0


def _split(data: bytes, final: bool) -> list[_Line]:
    lines, start = [], 0
    for match in _LINE_END.finditer(data):
        lines.append(_Line(start, match.start(), match.end()))
        start = match.end()
    if final and start < len(data):
        lines.append(_Line(start, len(data), len(data)))
    return lines


def _fitting(data: bytes, final: bool, full: bool) -> tuple[list[str], int]:
    """The lines that fit into a frame, and how many bytes of ``data`` they are.

    :param full: there is more behind ``data``, so that a line without its end in it is longer than a piece can be.
    """
    texts: list[str] = []
    budget, used = FRAME_BUDGET, 0
    for line in _split(data, final):
        if line.end - line.start > LONG_LINE_BYTES:
            return (texts, used) if texts else _cut(data[: line.end])
        text = data[line.start : line.end].decode("utf-8", "replace")
        budget -= len(json.dumps(text)) + 1
        if budget < 0:
            break
        texts.append(text)
        used = line.next
    return (texts, used) if texts or not full else _cut(data)


def _cut(data: bytes) -> tuple[list[str], int]:
    """The first piece of a line that is too long for a frame, cut between characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data[:LONG_LINE_BYTES])
    held_back = len(decoder.getstate()[0])
    used = min(LONG_LINE_BYTES, len(data)) - held_back
    return ([text], used) if used else ([data.decode("utf-8", "replace")], len(data))
