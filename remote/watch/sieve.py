"""Blocks of a log in, the lines that may matter out: most of a server's log is about requests, and is never decoded.

While a start is read, every line may matter. A server that is ready is silent about itself: then a line passes that is
not at the level INFO and has a word of failures in it, or that has a word of a stop or of another start.
"""

from __future__ import annotations

import re

from remote.watch.follow import MAX_LINE_BYTES

_SUSPECT = re.compile(
    rb"rror|xception|[Kk]illed|Terminated|CANCELLED|fault|ut of memory|OutOfMemory|died|CUBLAS|[Tt]imed out|[Tt]imeout"
    rb"|NCCL|nccl|Watchdog|recvValue|TCPStore|No space|quota|No available|shutdown|Interrupt|Exit"
)


class Sieve:
    """Lines end at ``\\n`` or ``\\r``, wherever the blocks are cut.

    ``serving``: set it when the log has said that the server is ready, take it back when another start begins.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._rest = b""
        self._last = b""
        self.serving = False

    @property
    def last_line(self) -> bytes:
        """The last line that was seen while serving, passed or not: it has the latest time stamp."""
        return self._last[: self._max]

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes and that may matter."""
        data = self._rest + data
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        lines = data.split(b"\n")
        self._rest = lines.pop()[: self._max]
        return self.pass_on(lines)

    def flush(self) -> list[bytes]:
        """The line that has no end, for when nothing will follow."""
        rest, self._rest = self._rest, b""
        return self.pass_on([rest])

    def pass_on(self, lines: list[bytes]) -> list[bytes]:
        """Of complete lines, those that may matter."""
        if not self.serving:
            return [line[: self._max] for line in lines if line]
        self._last = next((line for line in reversed(lines) if line), self._last)
        rare = [
            line
            for line in lines
            if b"INFO" not in line or b"version " in line or b" engine (v" in line or b"hut" in line
        ]
        return [line[: self._max] for line in rare if b"INFO" in line or _SUSPECT.search(line)]
