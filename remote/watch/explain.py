"""A whole log explained: how far its last start came, how long each phase took, and what went wrong.

Bytes in, one explanation out; the memory is bounded. Times are seconds since the start's first line, from the log's own
stamps. Readiness is what the log says: nobody asks ``/health`` here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from remote.protocol.progress import Failure, Progress
from remote.watch import clock, failures, lines, vllm_load, wrappers
from remote.watch import vllm_wording as wording
from remote.watch.follow import decoded
from remote.watch.sieve import Sieve

START_MARKS = (b"API server version ", b" LLM engine (v", b"\x88  version ")
"""One of these is in every start's first lines; the last is the banner's. To find the last start of a long log by."""

START_WITHIN = 1024 * 1024
"""A start's own first lines lie at most so many bytes before the last of its start marks."""

_SERVER_BEGINS = re.compile(r"vLLM API server version |[ ▄█▀]+version \d")
_ENGINE_BEGINS = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v")
_MODEL = re.compile(r"(?:with config: model='|[ ▄█▀]+model +)(?P<model>[^'\s]{1,400})")
_WANTED_SIGNALS = (2, 15)
_WANTED_CODES = (0, 130, 143)  # those of a shell for these signals
_RANK = {name: place for place, name in enumerate(wording.PHASES)}


@dataclass(frozen=True)
class Explanation:
    """What a log says.

    :param state: ``loading``, ``ready``, ``stopped`` (it was told to), ``failed``; ``unknown`` for a log of something
        else.
    :param progress: of the last start in it; ``ready`` is whether it came to be ready, whatever came after.
    :param seconds: how long each phase took, the last one to the log's end; empty where the log carries no times.
    :param total_seconds: from the first line to readiness, or to the last line; None without times.
    :param error: why it failed, None where the log names nothing and no end was given.
    :param note: what the log leaves open, for people; or empty.
    """

    state: str
    progress: Progress
    seconds: dict[str, float]
    total_seconds: Optional[float]
    error: Optional[Failure]
    version: str = ""
    model: str = ""
    note: str = ""


class Explainer:
    """Reads a log from blocks of bytes, in order; of several starts the last one counts."""

    def __init__(self) -> None:
        self._sieve = Sieve()
        self._clock = clock.Clock()
        self._first = True
        self._begin()

    def _begin(self) -> None:
        self._load = vllm_load.initial()
        self._scan: Any = failures.initial()
        self._server_spoke = False
        self._model = ""
        self._begun_at = self._clock.now
        self._complete_at: Optional[float] = None
        self._phases_at_exception: Optional[int] = None

    def feed(self, data: bytes) -> None:
        """The next block."""
        self._read(self._sieve.feed(data))

    def end(self) -> None:
        """To be called after the last block: a last line may have no end."""
        self._read(self._sieve.flush())
        self._clock = clock.read_line(self._clock, decoded(self._sieve.last_line))

    def explain(
        self, code: Optional[int] = None, signal: Optional[int] = None, kernel: Optional[str] = None
    ) -> Explanation:
        """What was read.

        :param code, signal: how the server's process ended, where that is known.
        :param kernel: the line in which the kernel says that it killed one of its processes, empty where its log has
            none, None where nobody has that log.
        """
        now = self._clock.now - self._begun_at
        ready_at = self._complete_at
        error = self._error(code, signal, kernel)
        over = error is not None or self._scan.stopping or code is not None or signal is not None
        stopped = over and error is None
        load = self._load if ready_at is None else vllm_load.read_health(self._load, ready_at)
        told = vllm_load.progress(load, now, healthy=ready_at is not None)
        phases = told.phases
        if over and phases:
            phases = (*phases[:-1], replace(phases[-1], end=max(now, phases[-1].start)))
        told = replace(told, phases=phases)
        known = self._clock.known
        seconds = {phase.name: (now if phase.end is None else phase.end) - phase.start for phase in phases}
        return Explanation(
            state=_state(told, error, stopped),
            progress=told if known else replace(told, phases=tuple(replace(p, start=0.0, end=None) for p in phases)),
            seconds=seconds if known else {},
            total_seconds=(now if ready_at is None else ready_at) if known else None,
            error=error,
            version=self._load.version,
            model=self._model,
            note=self._note(told, error),
        )

    def _read(self, raw: Sequence[bytes]) -> None:
        for place, line in enumerate(raw):
            serving = self._sieve.serving
            self._read_line(decoded(line))
            if self._sieve.serving and not serving:
                rest = self._sieve.pass_on(list(raw[place + 1 :]))
                self._read(rest)
                return

    def _read_line(self, line: str) -> None:
        ticked = clock.read_line(self._clock, line)
        begins = _ENGINE_BEGINS.search(line) or ("version " in line and _SERVER_BEGINS.search(line))
        if begins and self._starts_anew(line):
            self._clock = ticked if ticked.kind == wrappers.SECONDS else clock.read_line(clock.Clock(), line)
            self._begin()
        else:
            self._clock = ticked
        if not self._model and (model := _MODEL.search(line)):
            self._model = model["model"]
        at = self._clock.now - self._begun_at
        self._load = vllm_load.read_line(self._load, line, at)
        if not self._load.phases and wording.SERVING.match(lines.parse(line).message):
            self._load = replace(self._load, startup_complete=True)  # the log begins after the start
        self._scan = failures.read_line(self._scan, line)
        if self._complete_at is None and self._load.startup_complete:
            self._complete_at = at
        if self._phases_at_exception is None and (self._scan.exception or self._scan.engine_exception):
            self._phases_at_exception = len(self._load.phases)
        self._sieve.serving = self._load.startup_complete

    def _starts_anew(self, line: str) -> bool:
        message = lines.parse(line).message
        server = _SERVER_BEGINS.match(message) is not None
        if not server and not _ENGINE_BEGINS.match(message):
            return False
        spoke, self._server_spoke = self._server_spoke, self._server_spoke or server
        scan = self._scan
        if self._load.startup_complete or scan.stopping or scan.died or scan.cause or scan.engine_exception:
            over = True
        elif server:
            over = bool(scan.exception) or _RANK.get(self._load.phase, 0) >= _RANK[wording.BUILD]
        else:
            over = not spoke and _RANK.get(self._load.phase, 0) >= _RANK[wording.POST_LOAD]
        return over

    def _error(self, code: Optional[int], signal: Optional[int], kernel: Optional[str]) -> Optional[Failure]:
        scan = self._scan
        if code is not None or signal is not None:
            wanted = scan.stopping and (code in _WANTED_CODES or signal in _WANTED_SIGNALS)
            return None if wanted else failures.verdict(scan, code, signal, kernel)
        found = failures.verdict(scan, None, None, kernel)
        if found is not None or scan.stopping:
            return found
        went_on = self._phases_at_exception is not None and len(self._load.phases) > self._phases_at_exception
        ended = scan.exception or scan.engine_exception
        if scan.died or scan.weak or (ended and not went_on and not self._load.startup_complete):
            return failures.verdict(scan, 1, None, kernel)
        return None

    def _note(self, told: Progress, error: Optional[Failure]) -> str:
        if error is not None or told.ready or self._scan.stopping:
            return ""
        if not told.phase:
            return "nothing in it is of a vLLM start"
        return "the log ends here and names no error: it may still be running, or have died without a word"


def _state(told: Progress, error: Optional[Failure], stopped: bool) -> str:
    if error is not None:
        return "failed"
    if stopped:
        return "stopped"
    if told.ready:
        return "ready"
    return "loading" if told.phase else "unknown"
