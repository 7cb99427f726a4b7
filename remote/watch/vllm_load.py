"""How far the start of a vLLM server is, from its log: a pure function of state, line and time.

Phases only go forward. What a log does not say stays unknown: no figure, no count and no phase is made up. The load is
ready only when the server's ``/health`` answered 200; the log's own "startup complete" is not taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from remote.protocol.progress import Phase, Progress
from remote.watch import lines
from remote.watch import vllm_wording as wording

_RANK = {name: place for place, name in enumerate(wording.PHASES)}
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}  # tqdm's unit_scale
_SLACK = 2.0  # a log's own stamps are whole seconds
_SHORTEST_WRAPPED = 60
_LONGEST_JOINED = 1000
_FILES_OF_RUNAI = re.compile(r"0\.[0-9]\.")  # its bar counts files before 0.10
_CHECKPOINT_FIGURES = ("checkpoint_gib", "weights_seconds")  # said again for the draft, then with draft_ before it


@dataclass(frozen=True)
class Count:
    """The latest progress bar: ``done`` of ``total`` in ``unit``."""

    phase: str
    description: str
    done: float
    total: float
    unit: str

    @property
    def finished(self) -> bool:
        return self.done >= self.total


@dataclass(frozen=True)
class LoadState:
    """What the log has said so far. Times are seconds since the job's start.

    ``startup_complete``: the log has said so, after which no line is read any more. ``ready_at``: when ``/health``
    first answered 200. ``open_text``: a message that may go on in the next line, where a narrow terminal or pipe has
    wrapped it.
    """

    phases: tuple[Phase, ...] = ()
    count: Optional[Count] = None
    figures: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    detail: str = ""
    startup_complete: bool = False
    ready_at: Optional[float] = None
    open_text: str = ""

    @property
    def phase(self) -> str:
        """The running phase, empty while the log has said nothing."""
        return self.phases[-1].name if self.phases else ""


def initial() -> LoadState:
    """The state before the first line."""
    return LoadState()


def read_line(state: LoadState, line: str, at: float) -> LoadState:
    """The state after one more line of the log, which arrived ``at`` seconds after the job's start."""
    if state.startup_complete:
        return state
    record = lines.parse(line)
    message = record.message.lstrip("\r")
    if not message:
        return state
    bar = wording.BAR.match(message) if "%" in message else None
    if bar:
        return _read_bar(replace(state, open_text=""), bar["description"], bar["done"], bar["total"], bar["rate"], at)
    if wording.STARTED.match(message):
        return replace(_enter(state, wording.SERVER, at), startup_complete=True, detail="waiting for /health")
    if state.phases and wording.SERVING.match(message):
        return replace(state, startup_complete=True, detail="it serves requests", open_text="")
    if record.level or record.role:
        return _read_message(state, message, at, len(line) >= _SHORTEST_WRAPPED)
    for glue in ("", " ") if state.open_text else ():
        joined = _read_message(state, state.open_text + glue + message, at, True)
        if joined.phases != state.phases or joined.figures != state.figures:
            return joined
    if state.open_text and len(line) >= _SHORTEST_WRAPPED:
        return replace(state, open_text=(state.open_text + message)[:_LONGEST_JOINED])
    return _read_message(state, message, at, False)


def _read_message(state: LoadState, message: str, at: float, may_go_on: bool) -> LoadState:
    open_text = message[:_LONGEST_JOINED] if may_go_on else ""
    if open_text != state.open_text:
        state = replace(state, open_text=open_text)
    for mark in wording.MARKS:
        match = mark.pattern.match(message)
        if match:
            return _read_mark(state, mark, match, at)
    return state


def read_health(state: LoadState, at: float) -> LoadState:
    """The state after ``/health`` answered 200: only the first time counts."""
    return state if state.ready_at is not None else replace(state, ready_at=max(at, _latest(state)))


def progress(state: LoadState, at: float, healthy: bool) -> Progress:
    """The progress to show ``at`` seconds after the start; ``healthy`` is whether ``/health`` answers 200 now."""
    figures = dict(state.figures) or None
    if healthy:
        phases = _close(state.phases, _ready_time(state, at))
        ready = Phase(wording.READY, _ready_time(state, at))
        return Progress(wording.READY, (*phases, ready), ready=True, figures=figures)
    detail = "was ready; /health does not answer" if state.ready_at is not None else state.detail
    count = state.count if state.count and state.count.phase == state.phase else None
    if count is None:
        return Progress(state.phase, state.phases, detail=detail, figures=figures)
    return Progress(
        phase=state.phase,
        phases=state.phases,
        done=count.done,
        total=count.total,
        unit=count.unit,
        percent=100.0 * count.done / count.total,
        detail=detail,
        figures=figures,
    )


def _read_mark(state: LoadState, mark: wording.Mark, match: re.Match[str], at: float) -> LoadState:
    phase = mark.phase
    if mark.reads_checkpoint and state.phase == wording.WEIGHTS and _weights_are_read(state):
        phase = wording.DRAFT
    entered = _enter(state, phase, at)
    groups: dict[str, Optional[str]] = match.groupdict()
    version = groups.pop("version", None) or entered.version
    figures = dict(entered.figures)
    for name, text in groups.items():
        value = _number(text)
        if value is None or (name.endswith("_seconds") and value > at + _SLACK):
            continue  # a counter that was never started gives more seconds than have passed
        if name in _CHECKPOINT_FIGURES and entered.phase == wording.DRAFT:
            name = f"draft_{name}"
        figures[name] = _keep(mark.keep, figures.get(name), value)
    current = entered.phase == phase or (phase == wording.WEIGHTS and entered.phase == wording.DRAFT)
    detail = match.expand(mark.detail) if current else entered.detail
    return replace(entered, figures=figures, version=version, detail=detail)


def _read_bar(state: LoadState, description: str, done_text: str, total_text: str, rate: str, at: float) -> LoadState:
    bar = next((bar for bar in wording.BARS if description.startswith(bar.description)), None)
    done, total = _scaled(done_text), _scaled(total_text)
    if bar is None or done is None or total is None or total <= 0 or done > total:
        return state
    unit = _unit(bar, rate, state.version)
    before = state.count if state.count and state.count.description == description else None
    again = before is not None and (before.total != total or (before.finished and done == 0))
    phase = bar.phase
    if phase == wording.WEIGHTS and (state.phase == wording.DRAFT or (state.phase == wording.WEIGHTS and again)):
        phase = wording.DRAFT
    if before is not None and not again:
        done = max(done, before.done)  # bars of several engines may be mixed in one log
    entered = _enter(state, phase, at)
    if entered.phase != phase:
        return entered
    return replace(entered, count=Count(phase, description, done, total, unit), detail=description)


def _unit(bar: wording.BarWording, rate: str, version: str) -> str:
    if rate.endswith("B/s"):
        return "bytes"
    if bar.description.endswith("Runai Model Streamer") and _FILES_OF_RUNAI.match(version):
        return "shards"
    return bar.unit


def _weights_are_read(state: LoadState) -> bool:
    finished_bar = state.count is not None and state.count.phase == wording.WEIGHTS and state.count.finished
    return finished_bar or "weights_seconds" in state.figures


def _enter(state: LoadState, phase: str, at: float) -> LoadState:
    """The state with the phase begun, unless it is running or over."""
    if state.phases and _RANK[phase] <= _RANK[state.phase]:
        return state
    # A server begins by importing and configuring, long before its first line; any other first line shows that the
    # beginning of the log is missing, and then nothing is known about the time before it.
    start = 0.0 if not state.phases and phase == wording.CONFIG else max(at, _latest(state))
    return replace(state, phases=(*_close(state.phases, start), Phase(phase, start)), count=None, detail="")


def _close(phases: tuple[Phase, ...], at: float) -> tuple[Phase, ...]:
    return (*phases[:-1], replace(phases[-1], end=at)) if phases else ()


def _latest(state: LoadState) -> float:
    return state.phases[-1].start if state.phases else 0.0


def _ready_time(state: LoadState, at: float) -> float:
    return state.ready_at if state.ready_at is not None else max(at, _latest(state))


def _keep(rule: str, before: Optional[float], value: float) -> float:
    if before is None:
        return value
    return {wording.FIRST: before, wording.LARGEST: max(before, value), wording.SMALLEST: min(before, value)}[rule]


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text.replace(",", "")) if text else None
    except ValueError:
        return None


def _scaled(text: str) -> Optional[float]:
    number = _number(text[:-1] if text[-1] in _SCALES else text)
    return None if number is None else number * _SCALES.get(text[-1], 1.0)
