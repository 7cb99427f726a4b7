"""Blocks of a log in, the lines that may matter out: most of a long log is about requests, and is never decoded.

While a start is read, a message at a quiet level passes when it begins like one that the watchers know; the last one
before a line of another kind passes too, since it has the time. A server that is ready is silent about itself: then a
line passes that is not at the level INFO and has a word of failures in it, or that has a word of a stop or of another
start. The traceback of a request that failed does not pass.
"""

from __future__ import annotations

import re

from remote.watch.follow import MAX_LINE_BYTES

_SUSPECT = re.compile(
    rb"rror|xception|[Kk]illed|Terminated|CANCELLED|fault|ut of memory|OutOfMemory|died|CUBLAS|[Tt]imed out|[Tt]imeout"
    rb"|NCCL|nccl|Watchdog|recvValue|TCPStore|No space|quota|No available|shutdown|Interrupt|Exit"
)
_TOLD_AT_INFO = (b"version ", b" engine (v", b"hut")
_OF_REQUEST = b"Exception in ASGI application"
_OF_TRACEBACK = re.compile(rb" |Traceback|During handling|The above|[\w.]+(?:Error|Exception)\b|$")

_BEGINNINGS = frozenset(
    beginning.encode()
    for beginning in (
        "vLLM", "non-", "args", "Reso", "Usin", "Init", "worl", "rank", "Work", "Star", "Load", "Time", "EP w", "Auto",
        "Netw", "File", "Pref", "Mapp", "Weig", "Mode", "Dyna", "Dire", "Comp", "Cach", "savi", "save", "torc", "Esti",
        "Memo", "Avai", "Expl", "GPU ", "CPU ", "XPU ", "HPU ", "TPU ", "Maxi", "Deep", "JIT ", "Runn", "Warm", "Capt",
        "Grap", "init", "Avg ", "Engi", "Rece", "rece", "Shut", "shut", "Appl", "Wait",
    )
)  # fmt: skip
"""The first four letters of the messages in ``vllm_wording`` and of those about a stop."""

_TAGS = frozenset(b"([# \xe2")  # a message may begin with a tag, and the banner with a block


class Sieve:
    """Lines end at ``\\n`` or ``\\r``, wherever the blocks are cut.

    ``serving``: set it when the log has said that the server is ready, take it back when another start begins.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._rest = b""
        self._last = b""
        self._in_request = False
        self.serving = False

    @property
    def last_line(self) -> bytes:
        """The last line that was seen, passed or not: it has the latest time stamp."""
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
        self._last = next((line for line in reversed(lines) if line), self._last)
        passed = self._of_serving(lines) if self.serving else _of_start(lines)
        return [line[: self._max] for line in passed]

    def _of_serving(self, lines: list[bytes]) -> list[bytes]:
        rare = [line for line in lines if b"INFO" not in line]
        whole = b"\n".join(lines)
        if any(word in whole for word in _TOLD_AT_INFO):
            rare = [line for line in lines if b"INFO" not in line or any(word in line for word in _TOLD_AT_INFO)]
        passed = []
        for line in rare:
            if self._in_request and (line[:1] == b" " or _OF_TRACEBACK.match(line)):
                continue
            if _OF_REQUEST in line:
                self._in_request = True
            else:
                self._in_request = False
                if b"INFO" in line or _SUSPECT.search(line):
                    passed.append(line)
        return passed


def _of_start(lines: list[bytes]) -> list[bytes]:
    passed = []
    silent = b""
    for line in lines:
        if not line:
            continue
        if _says_nothing(line):
            silent = line
            continue
        if silent:
            passed.append(silent)
            silent = b""
        passed.append(line)
    return passed


def _says_nothing(line: bytes) -> bool:
    end = line.find(b"] ", 0, 300)
    if end < 0 or line.startswith(b'{"'):
        return False
    header = line[:end]
    if not (b"DEBUG " in header or b"INFO " in header or b"WARNING " in header):
        return False
    beginning = line[end + 2 : end + 6]
    return not (beginning in _BEGINNINGS or beginning[:1].isdigit() or (beginning and beginning[0] in _TAGS))
