"""The events of a stage reduced to its progress: a pure function of lines and times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from pipeline.plan import events
from pipeline.plan.events import Count, EpochSaved, Event, Failed, Message, Metrics
from remote.protocol.progress import Evidence, Failure, Phase, Progress

STARTING = "starting"
MAX_PHASES = 200
MAX_FIGURES = 64
MAX_EVIDENCE = 128
MAX_TEXT = 500
MAX_MESSAGES = 200
MAX_SAVED = 4096


@dataclass(frozen=True)
class StageState:
    """What the stage has said so far.

    :param messages: ``(level, text)`` of the sentences for people; past ``MAX_MESSAGES`` the newest are left out.
    :param saved: the epochs whose checkpoints are on the disk, in the order of their numbers; of one that was
        saved again the newer event.
    """

    phases: tuple[Phase, ...] = ()
    count: Optional[Count] = None
    figures: tuple[tuple[str, float], ...] = ()
    step: Optional[int] = None
    evidence: tuple[Evidence, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    saved: tuple[EpochSaved, ...] = ()
    failure: Optional[Failure] = None


def initial() -> StageState:
    """The state before the first event."""
    return StageState(phases=(Phase(STARTING, 0.0),))


def read_line(state: StageState, line: str, at: float) -> StageState:
    """The state after one more line of the progress file.

    :param at: seconds since the start of the job.
    """
    decoded = events.decode(line)
    return state if decoded is None else _read(state, decoded[1], at)


def progress(state: StageState, done: bool) -> Progress:
    """The picture to show.

    :param done: the stage has ended and its work is complete.
    """
    count = state.count
    percent = None
    if count is not None and count.total:
        percent = max(0.0, min(100.0, 100.0 * count.done / count.total))
    current = state.phases[-1]
    figures = dict(state.figures)
    if state.step is not None:
        figures["step"] = float(state.step)
    return Progress(
        phase=current.name,
        phases=state.phases,
        done=count.done if count else None,
        total=count.total if count else None,
        unit=count.unit if count else "",
        percent=percent,
        ready=done,
        detail=current.detail,
        figures=figures or None,
        rate=count.rate if count else None,
    )


def _read(state: StageState, event: Event, at: float) -> StageState:
    if isinstance(event, events.Phase):
        ended = tuple(replace(phase, end=at) if phase.end is None else phase for phase in state.phases)
        begun = Phase(event.name[:MAX_TEXT], at, detail=event.detail[:MAX_TEXT])
        return replace(state, phases=(*ended, begun)[-MAX_PHASES:], count=None)
    if isinstance(event, Count):
        return replace(state, count=replace(event, unit=event.unit[:40]))
    if isinstance(event, Metrics):
        values = {
            **dict(state.figures),
            **{name[:80]: value for name, value in event.values.items() if value is not None},
        }
        step = state.step if event.step is None else event.step
        return replace(state, figures=tuple(values.items())[:MAX_FIGURES], step=step)
    if isinstance(event, Message):
        if len(state.messages) >= MAX_MESSAGES:
            return state
        return replace(state, messages=(*state.messages, (event.level, event.text[:MAX_TEXT])))
    if isinstance(event, events.Evidence):
        value = event.value[:MAX_TEXT] if isinstance(event.value, str) else event.value
        item = Evidence(event.name[:80], value, event.unit[:40], event.ok)
        others = tuple(known for known in state.evidence if known.name != item.name)
        return replace(state, evidence=(*others, item)[:MAX_EVIDENCE])
    if isinstance(event, EpochSaved):
        saved = [known for known in state.saved if known.epoch != event.epoch]
        saved.append(event)
        return replace(state, saved=tuple(sorted(saved, key=lambda known: known.epoch))[-MAX_SAVED:])
    return replace(state, failure=_failure(event))


def _failure(event: Failed) -> Failure:
    where = f"{event.where}: " if event.where else ""
    return Failure(event.klass[:80], f"{where}{event.cause}"[:MAX_TEXT], event.remedy[:MAX_TEXT])
