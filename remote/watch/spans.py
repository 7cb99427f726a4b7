"""The spans of a start, out of its phases: fewer and longer parts, whose durations can be told from earlier starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remote.protocol.progress import Phase
from remote.watch import vllm_wording as wording
from remote.watch.history import SPANS

START, WEIGHTS, LOAD_END, COMPILE, CAPTURE, SERVER = SPANS

_SPAN_OF = {
    wording.CONFIG: START,
    wording.ENGINE: START,
    wording.WORKERS: START,
    wording.BUILD: START,
    wording.DOWNLOAD: START,
    wording.WEIGHTS: WEIGHTS,
    wording.DRAFT: LOAD_END,  # a draft is small; its load ends with what other ranks still do
    wording.POST_LOAD: LOAD_END,
    wording.COMPILE: COMPILE,
    wording.PROFILE: COMPILE,
    wording.KV_CACHE: CAPTURE,
    wording.WARM_UP: CAPTURE,
    wording.CAPTURE: CAPTURE,
    wording.SERVER: SERVER,
}


@dataclass(frozen=True)
class Begun:
    """A span that has begun ``start`` seconds after the start of the job."""

    name: str
    start: float


def begun(phases: Sequence[Phase]) -> tuple[Begun, ...]:
    """The spans that have begun, in order. The first one begins with the job where the log is whole."""
    found: list[Begun] = []
    for phase in phases:
        name = _SPAN_OF.get(phase.name)
        if name is not None and (not found or found[-1].name != name):
            found.append(Begun(name, phase.start))
    return tuple(found)


def durations(spans: Sequence[Begun], end: float) -> dict[str, float]:
    """The seconds of each span of a start that was ready at ``end``."""
    ends = [*(span.start for span in spans[1:]), end]
    return {span.name: max(0.0, after - span.start) for span, after in zip(spans, ends)}
