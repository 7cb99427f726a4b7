"""Two jobs side by side: their settings with the differences, and what came of them. Pure.

What a job did is what it told itself (its figures and evidence): the records of a run go on over several jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eagle_console import format as fmt
from eagle_console.documents import Document
from eagle_console.text import clean
from eagle_console.training_figures import training_of
from remote.protocol.adopted import Adopted
from remote.protocol.jobs import Job


@dataclass(frozen=True)
class Pair:
    """One thing of both jobs: None where it is not known.

    :param unit: of numbers; ``s`` and ``bytes`` are shown as times and sizes.
    """

    name: str
    left: Any
    right: Any
    unit: str = ""

    @property
    def differs(self) -> bool:
        """Both are known and not the same."""
        return self.left is not None and self.right is not None and bool(self.left != self.right)

    @property
    def change(self) -> float | None:
        """How much more the right one is; None for what is no number."""
        if _number(self.left) and _number(self.right):
            return float(self.right - self.left)
        return None


@dataclass(frozen=True)
class Comparison:
    """Two jobs. Settings that differ come first."""

    left: Job
    right: Job
    settings: tuple[Pair, ...]
    results: tuple[Pair, ...]


def compare(left: Job, right: Job, adopted: Iterable[Adopted] = ()) -> Comparison:
    """What is the same and what is not.

    :param adopted: the records of those of the two that are not ours.
    """
    records = {record.id: record for record in adopted}
    return Comparison(left, right, tuple(_settings(left, right)), tuple(_results(left, right, records)))


def one_before(job: Job, jobs: Iterable[Job]) -> Job | None:
    """The newest older job of the same stage, else the oldest newer one; None where there is no other."""
    same = [one for one in jobs if one.stage == job.stage and one.id != job.id]
    older = [one for one in same if one.created <= job.created]
    if older:
        return max(older, key=lambda one: one.created)
    return min(same, key=lambda one: one.created, default=None)


def document(found: Comparison) -> Document:
    """The comparison as ``--json`` gives it."""
    return {
        "jobs": [found.left.id, found.right.id],
        "settings": [
            {"name": pair.name, "values": [pair.left, pair.right], "differs": pair.left != pair.right}
            for pair in found.settings
        ],
        "results": [
            {"name": pair.name, "unit": pair.unit, "values": [pair.left, pair.right], "change": pair.change}
            for pair in found.results
        ],
    }


def value_words(value: Any, unit: str = "") -> str:
    """A value as it is shown."""
    if value is None:
        return fmt.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _number(value):
        if unit == "s":
            return fmt.duration(value)
        if unit == "bytes":
            return fmt.gb(value)
        return fmt.count(value) if float(value).is_integer() else f"{value:.4g}"
    return clean(value, 400)


def change_words(pair: Pair) -> str:
    """By how much the right one is more or less: ``+0.12 (+7%)``; ``differs`` for what is no number; else empty."""
    change = pair.change
    if change is None:
        return "differs" if pair.differs else ""
    if change == 0:
        return ""
    sign = "+" if change > 0 else "-"
    share = f" ({100 * change / abs(pair.left):+.0f}%)" if pair.left else ""
    return f"{sign}{value_words(abs(change), pair.unit)}{share}"


def _settings(left: Job, right: Job) -> list[Pair]:
    names = dict.fromkeys([*left.parameters, *right.parameters])
    pairs = [Pair(name, left.parameters.get(name), right.parameters.get(name)) for name in names]
    return sorted(pairs, key=lambda pair: pair.left == pair.right)


def _results(left: Job, right: Job, records: Mapping[str, Adopted]) -> list[Pair]:
    ours, theirs = _facts(left, records.get(left.id)), _facts(right, records.get(right.id))
    names = dict.fromkeys([*ours, *theirs])
    pairs = []
    for name in names:
        (one, unit), (other, unit_too) = ours.get(name, (None, "")), theirs.get(name, (None, ""))
        if one is not None or other is not None:
            pairs.append(Pair(name, one, other, unit or unit_too))
    return pairs


def _facts(job: Job, record: Adopted | None) -> dict[str, tuple[Any, str]]:
    """What came of a job, by name, each with its unit."""
    facts: dict[str, tuple[Any, str]] = {"state": (job.state, ""), "duration": (job.seconds, "s")}
    training = record.training if record is not None else training_of(job)
    figures = job.progress.figures or {}
    if training is not None:
        facts |= {
            "steps": (training.step, ""),
            "loss": (training.loss, ""),
            "validation loss": (training.validation_loss, ""),
            "predicted acceptance": (figures.get("predicted_acceptance", training.predicted_length), ""),
            **{f"accuracy {place}": (value, "") for place, value in enumerate(training.accuracy)},
            "steps/s": (training.steps_per_second, ""),
            "tokens/s": (training.tokens_per_second, ""),
            "data wait": (training.data_wait, ""),
            "checkpoint": (figures.get("checkpoint_bytes"), "bytes"),
        }
    for phase in job.progress.phases if training is None else ():
        if phase.end is not None:
            facts[f"phase {phase.name}"] = (phase.end - phase.start, "s")
    for item in job.evidence:
        facts[item.name.replace("_", " ")] = (item.value, item.unit)
    return facts


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
