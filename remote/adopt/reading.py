"""What the log of an adopted process says, from its tail on: a load, its failure, or a training run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Optional

from remote.adopt import stamps
from remote.adopt.tailing import Tail
from remote.protocol import adopted
from remote.protocol.progress import Failure, Progress
from remote.protocol.training import Training
from remote.watch import failures, training, vllm_load, vllm_wording
from remote.watch import lines as vllm_lines

_START = re.compile(r"vLLM API server version |[ ▄█▀]+version \d")
_ACCESS = ' HTTP/1.1" '
"""uvicorn's word about a request: most of what a server says for weeks, and nothing about its start."""

_RANK = {name: place for place, name in enumerate(vllm_wording.PHASES)}
_BUILD = _RANK[vllm_wording.BUILD]


class LogReading:
    """The log of one process.

    :param kind: what is expected in it (``KIND_LOG``: either).
    :param started: when the process began, wall seconds; None where that is not known.
    """

    def __init__(self, path: str, kind: str, started: Optional[float]) -> None:
        self._tail = Tail(path)
        self._started = started
        self._reads_load = kind != adopted.KIND_TRAINING
        self._reads_training = kind in (adopted.KIND_TRAINING, adopted.KIND_LOG)
        self._load = vllm_load.initial()
        self._scan: Any = failures.initial()
        self._training = training.initial()
        self._since = -1.0  # phases that did not begin after it began at times that nobody knows
        self._healthy = False
        self._completed: Optional[float] = None  # when a start that was over before we came said so
        self.path = path

    @property
    def problem(self) -> str:
        """Why the log cannot be read, empty when it can."""
        return self._tail.problem

    @property
    def version(self) -> str:
        """vLLM's release, empty while the log has not named it."""
        return self._load.version

    @property
    def offset(self) -> int:
        """Where in the log the reading is."""
        return self._tail.offset

    def turn(self, at: float) -> None:
        """Reads what is new. ``at`` is in seconds since the process's start (since we came, where that is unknown)."""
        piece = self._tail.poll()
        if piece.restarted:
            self._begin_anew()
        if piece.old:
            self._read_old(piece.lines, piece.modified, at)
        else:
            self._read_new(piece.lines, at)

    def end(self, at: float) -> None:
        """Reads what is left when the process has ended."""
        self._healthy = False
        self.turn(at)
        self._read_new(self._tail.flush().lines, at)
        if self._reads_training:
            self._training = training.flush(self._training, at)

    def healthy(self, at: float, healthy: bool) -> None:
        """Tells what ``/health`` says: only that makes a load ready."""
        self._healthy = healthy
        if healthy:
            self._load = vllm_load.read_health(self._load, at if self._completed is None else self._completed)

    def progress(self, at: float) -> Progress:
        """The load as far as the log tells it; phases whose times are not known are left out."""
        told = vllm_load.progress(self._load, at, self._healthy)
        phases = tuple(phase for phase in told.phases if phase.start > self._since)
        if self._since >= 0 and self._healthy:
            phases = ()  # it was ready before we came
        return dataclasses.replace(told, phases=phases)

    def training(self, at: Optional[float] = None) -> Optional[Training]:
        """The training run that the log tells of; None when it tells of none.

        :param at: now, for what is left; None once it has ended.
        """
        if not self._reads_training or not self._training.begun:
            return None
        return training.progress(self._training, at)

    def training_complete(self) -> bool:
        return training.complete(self._training)

    def says_load(self) -> bool:
        """Whether anything in the log was that of a vLLM server."""
        return bool(self._load.phase)

    def failure(self) -> Optional[Failure]:
        """The cause that the log names; None when it names none. How the process ended only its parent knows."""
        if not self._reads_load:
            return None
        found = failures.verdict(self._scan, None, None)
        if found is None and (self._scan.engine_exception or self._scan.exception):
            found = failures.verdict(self._scan, 1, None)
        return found

    def _read_old(self, lines: Sequence[str], modified: float, at: float) -> None:
        """Of several starts in one log only the last one is that of the process."""
        if self._reads_training:
            for line in lines:
                self._training = training.read_line(self._training, line, None)
        if not self._reads_load:
            return
        begins = max((place for place, line in enumerate(lines) if self._starts_anew(line)), default=0)
        begins = self._first_of_start(lines, begins)
        lines = lines[begins:]
        ages = stamps.ages(lines, self._started, modified) if self._started is not None and lines else None
        self._since = -1.0 if ages is not None or not lines else at
        for place, line in enumerate(lines):
            age = min(ages[place], at) if ages is not None else at
            complete = self._load.startup_complete
            self._read_load(line, age)
            if self._load.startup_complete and not complete:
                self._completed = age

    def _read_new(self, lines: Sequence[str], at: float) -> None:
        for line in lines:
            if self._reads_training:
                self._training = training.read_line(self._training, line, at)
            if self._reads_load:
                if self._starts_anew(line) and self._is_beyond_start():
                    self._begin_anew()
                self._read_load(line, at)

    def _begin_anew(self) -> None:
        self._load, self._scan, self._completed = vllm_load.initial(), failures.initial(), None

    def _read_load(self, line: str, at: float) -> None:
        if _ACCESS in line:
            return
        self._load = vllm_load.read_line(self._load, line, at)
        self._scan = failures.read_line(self._scan, line)

    def _starts_anew(self, line: str) -> bool:
        return "version " in line and _START.match(vllm_lines.parse(line).message) is not None

    def _first_of_start(self, lines: Sequence[str], place: int) -> int:
        """The first of the start marks that belong together: a start says its version in several ways."""
        while place > 0:
            earlier = max((n for n in range(max(0, place - 50), place) if self._starts_anew(lines[n])), default=None)
            if earlier is None or any(_reaches_build(line) for line in lines[earlier:place]):
                return place
            place = earlier
        return place

    def _is_beyond_start(self) -> bool:
        return self._load.startup_complete or _RANK.get(self._load.phase, 0) >= _BUILD


def _reaches_build(line: str) -> bool:
    state = vllm_load.read_line(vllm_load.initial(), line, 0.0)
    return state.startup_complete or _RANK.get(state.phase, 0) >= _BUILD
