"""The events of a stage reduced to its progress: a pure function of lines and times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from pipeline.plan import events
from pipeline.plan.events import Count, EpochSaved, Event, Failed, Message, Metrics
from remote.protocol.progress import Eta, Evidence, Failure, Phase, Progress
from remote.watch import steps
from remote.watch.steps import Steps

STARTING = "starting"
MAX_PHASES = 200
MAX_FIGURES = 64
MAX_EVIDENCE = 128
MAX_TEXT = 500
MAX_MESSAGES = 200
MAX_SAVED = 4096

STEPS = "steps"
"""The unit of a training run, whose pauses between epochs belong to it."""

_PAUSES = ("save", "validate")


@dataclass(frozen=True)
class StageState:
    """What the stage has said so far.

    :param messages: ``(level, text)`` of the sentences for people; past ``MAX_MESSAGES`` the newest are left out.
    :param saved: the epochs whose checkpoints are on the disk, in the order of their numbers; of one that was
        saved again the newer event.
    :param steps: the counts as they arrived; ``counted`` is the last of them, also after its phase.
    :param broken_since: the step since which the loss is no number, None while it is one.
    """

    phases: tuple[Phase, ...] = ()
    count: Optional[Count] = None
    figures: tuple[tuple[str, float], ...] = ()
    step: Optional[int] = None
    evidence: tuple[Evidence, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    saved: tuple[EpochSaved, ...] = ()
    failure: Optional[Failure] = None
    steps: Steps = field(default_factory=Steps)
    counted: Optional[Count] = None
    broken_since: Optional[int] = None


def initial() -> StageState:
    """The state before the first event."""
    return StageState(phases=(Phase(STARTING, 0.0),))


def read_line(state: StageState, line: str, at: float) -> StageState:
    """The state after one more line of the progress file.

    :param at: seconds since the start of the job.
    """
    decoded = events.decode(line)
    return state if decoded is None else _read(state, decoded[1], at)


def progress(state: StageState, done: bool, at: Optional[float] = None) -> Progress:
    """The picture to show.

    :param done: the stage has ended and its work is complete.
    :param at: now, in seconds since the start of the job; None once it has ended: nothing is left then.
    """
    count = state.count
    percent = None
    if count is not None and count.total:
        percent = max(0.0, min(100.0, 100.0 * count.done / count.total))
    current = state.phases[-1]
    figures = dict(state.figures)
    if state.step is not None:
        figures["step"] = float(state.step)
    whole = steps.overall(state.steps)
    if whole is not None and state.counted is not None and state.counted.unit == STEPS:
        figures["steps_per_second_overall"] = round(whole, 4)
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
        eta=_eta(state, at) if at is not None and not done else None,
        bottleneck=_trouble(state, at) if at is not None and not done else "",
    )


def _eta(state: StageState, at: float) -> Optional[Eta]:
    """When the counted work will be done: of a training run with its pauses, of other work this part's."""
    counted = state.counted
    if counted is None or counted.total is None or not _counting(state):
        return None
    if counted.unit != STEPS:
        return steps.eta(state.steps, at, int(counted.total), what=counted.unit or "pieces")
    length = dict(state.figures).get("epoch_steps")
    return steps.eta(state.steps, at, int(counted.total), int(length) if length else None)


def _trouble(state: StageState, at: float) -> str:
    """What is wrong with the work, at once: a loss that is no number, nothing that comes."""
    words = []
    if state.broken_since is not None:
        words.append(f"The loss is not a number since step {state.broken_since}.")
    if _counting(state):
        words.append(steps.stall(state.steps, at, state.counted.unit if state.counted else ""))
    return " ".join(filter(None, words))


def _counting(state: StageState) -> bool:
    """Whether the counted work goes on: in its own phase, or in a pause of a training run."""
    if state.count is not None:
        return True
    return state.counted is not None and state.counted.unit == STEPS and _part(state.phases[-1].name) in _PAUSES


def _part(name: str) -> str:
    """A phase's name without that of the recipe's part."""
    return name.rpartition(": ")[2]


def _read(state: StageState, event: Event, at: float) -> StageState:
    if isinstance(event, events.Phase):
        ended = tuple(replace(phase, end=at) if phase.end is None else phase for phase in state.phases)
        begun = Phase(event.name[:MAX_TEXT], at, detail=event.detail[:MAX_TEXT])
        state = replace(state, phases=(*ended, begun)[-MAX_PHASES:], count=None, steps=steps.pause(state.steps))
        return state if _part(begun.name) in (*_PAUSES, "train") else replace(state, steps=Steps())
    if isinstance(event, Count):
        return _count(state, replace(event, unit=event.unit[:40]), at)
    if isinstance(event, Metrics):
        values = {
            **dict(state.figures),
            **{name[:80]: value for name, value in event.values.items() if value is not None},
        }
        if "loss" in event.values and event.values["loss"] is None:
            values.pop("loss", None)  # no figure, and the one before is not the loss any more
        step = state.step if event.step is None else event.step
        broken = state.broken_since
        if "loss" in event.values:
            broken = None if event.values["loss"] is not None else step if broken is None else broken
        return replace(state, figures=tuple(values.items())[:MAX_FIGURES], step=step, broken_since=broken)
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


def _count(state: StageState, count: Count, at: float) -> StageState:
    """Work of another unit, or that begins anew, has a rate of its own."""
    before = state.counted
    kept = state.steps if before is None or before.unit == count.unit else Steps()
    epoch = dict(state.figures).get("epoch") if count.unit == STEPS else None
    kept = steps.arrived(kept, max(0, int(count.done)), at, None if epoch is None else int(epoch))
    return replace(state, count=count, counted=count, steps=kept)


def _failure(event: Failed) -> Failure:
    where = f"{event.where}: " if event.where else ""
    return Failure(event.klass[:80], f"{where}{event.cause}"[:MAX_TEXT], event.remedy[:MAX_TEXT])
