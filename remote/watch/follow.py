"""Log files as lines: a splitter of byte pieces, and a follower that reads only what was appended."""

from __future__ import annotations

import os
import re
from typing import Optional

MAX_LINE_BYTES = 16 * 1024
"""Longer lines are cut: vLLM prints its whole configuration on one line, and a binary file may have no line end."""

_BREAK = re.compile(rb"[\r\n]")
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # control sequences: colour, cursor movement
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: title, hyperlink
    r"|[@-Z\\^_]"  # two-character sequences
    r"|)"  # an escape that was cut off
)


def decoded(line: bytes) -> str:
    """The text of a line, without ANSI sequences."""
    text = line.decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text else text


class LineSplitter:
    """Bytes in, complete lines out.

    A line ends at ``\\n``, ``\\r`` or ``\\r\\n``, wherever the pieces are cut. Text is decoded as UTF-8 with
    replacement and freed of ANSI sequences. A carriage return with nothing before it only moves a cursor (progress bars
    begin with one), so it makes no empty line.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._pending = b""
        self._after_line = False  # a carriage return has just ended a line: a newline now belongs to it

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes."""
        if b"\r" in data or self._after_line:
            return self._feed_with_returns(data)
        first, *others = data.split(b"\n")
        self._append(first)
        if not others:
            return []
        last = others.pop()
        lines = [self._take(), *(decoded(piece[: self._max]) for piece in others)]
        self._append(last)
        return lines

    def _feed_with_returns(self, data: bytes) -> list[str]:
        lines = []
        start = 0
        for match in _BREAK.finditer(data):
            self._append(data[start : match.start()])
            start = match.end()
            newline = match.group() == b"\n"
            ends_line = bool(self._pending) or (newline and not self._after_line)
            if ends_line:
                lines.append(self._take())
            self._after_line = ends_line and not newline
        self._append(data[start:])
        return lines

    def flush(self) -> list[str]:
        """The line that has no end, for when nothing will follow."""
        return [self._take()] if self._pending else []

    def _append(self, piece: bytes) -> None:
        if piece:
            self._pending = (self._pending + piece)[: self._max]
            self._after_line = False

    def _take(self) -> str:
        pending, self._pending = self._pending, b""
        return decoded(pending)


class LogFollower:
    """Reads what is appended to a file, by polling: this works on network file systems, where inotify does not.

    A missing file has no lines. A file that was replaced, or that became shorter than what was read, is read again from
    its beginning.
    """

    def __init__(self, path: str, max_bytes_per_poll: int = 1024 * 1024) -> None:
        self._path = path
        self._max_bytes = max_bytes_per_poll
        self._restart(None)

    @property
    def offset(self) -> int:
        """How many bytes of the file have been read."""
        return self._offset

    def poll(self) -> list[str]:
        """The lines completed since the last call, from at most ``max_bytes_per_poll`` bytes; never raises."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            status = os.fstat(descriptor)
            file_id = (status.st_dev, status.st_ino)
            if file_id != self._file_id or status.st_size < self._offset:
                self._restart(file_id)
            data = os.pread(descriptor, self._max_bytes, self._offset)
        except OSError:
            return []
        finally:
            os.close(descriptor)
        self._offset += len(data)
        return self._splitter.feed(data)

    def flush(self) -> list[str]:
        """The last line where the file does not end with a line end; call it when its writer has ended."""
        return self._splitter.flush()

    def _restart(self, file_id: Optional[tuple[int, int]]) -> None:
        self._file_id = file_id
        self._offset = 0
        self._splitter = LineSplitter()
