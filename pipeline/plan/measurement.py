"""What a benchmark of a draft found, and how it is told: pure.

The acceptance comes from the server's counters, as differences over the measured requests: the mean acceptance length
is 1 + accepted tokens / drafts, since each verification also gives one token of the verifier's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

SCHEMA = 1

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

UNUSABLE_LENGTH = 1.1
"""Below this mean acceptance length a draft does not work: untrained, or loaded wrongly without an error."""

EQUAL_SHARE = 0.95
"""Fewer equal texts than this are worth a warning: rounding in bfloat16 makes a few differ."""

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \S+)?$")
_POSITION = re.compile(r'(?:^|,)position="(\d+)"')


@dataclass(frozen=True)
class Counters:
    """The server's speculative-decoding counters at one moment. ``accepted_at`` is by position in the draft."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    accepted_at: tuple[float, ...] = ()

    def since(self, before: Counters) -> Counters:
        """What was counted since an earlier moment of the same server."""
        earlier = (*before.accepted_at, *(0.0 for _ in self.accepted_at))
        return Counters(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted - before.accepted,
            tuple(now - then for now, then in zip(self.accepted_at, earlier)),
        )

    @property
    def acceptance_length(self) -> Optional[float]:
        """Tokens that one verification gives on average; None when nothing was drafted."""
        return 1.0 + self.accepted / self.drafts if self.drafts > 0 else None

    @property
    def acceptance_at(self) -> tuple[float, ...]:
        """The share of drafts of which the token at each position was accepted."""
        return tuple(value / self.drafts for value in self.accepted_at) if self.drafts > 0 else ()


@dataclass(frozen=True)
class Answer:
    """One greedy answer: the verifier's tokens, its text, and the tokens of the prompt."""

    prompt: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Mismatch:
    """An answer that the draft changed, at the first token that differs.

    :param without, with_draft: text of that token on either side; empty where the answer had ended.
    :param logprob_gap: how much likelier the verifier held its first choice there than the other; None if not known.
        Near 0 the two were as good as equal, and rounding decided.
    """

    prompt: str
    position: int
    without: str
    with_draft: str
    logprob_gap: Optional[float] = None


@dataclass(frozen=True)
class Measured:
    """One set of prompts, answered without and with the draft.

    :param name: which prompts. :param prompts: how many. :param equal: how many answers are equal to the last token.
    :param tokens, seconds: generated tokens and wall time, without the draft and with it.
    """

    name: str
    prompts: int
    equal: int
    tokens: tuple[int, int]
    seconds: tuple[float, float]
    counters: Counters
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def tokens_per_second(self) -> tuple[float, float]:
        """Without the draft and with it."""
        return self.tokens[0] / self.seconds[0], self.tokens[1] / self.seconds[1]

    @property
    def speed_up(self) -> float:
        without, with_draft = self.tokens_per_second
        return with_draft / without if without > 0 else 0.0

    @property
    def equal_share(self) -> float:
        return self.equal / self.prompts if self.prompts else 0.0


@dataclass(frozen=True)
class Report:
    """A benchmark of one draft.

    :param predicted: the acceptance length that the draft's validation predicted; None where it is not known.
    :param settings: what was measured with: tokens at most, concurrency, drafted tokens, commands.
    """

    verifier: str
    draft: str
    sets: tuple[Measured, ...]
    predicted: Optional[float] = None
    settings: dict[str, Any] = field(default_factory=dict)


def read_counters(text: str) -> Counters:
    """The counters in the answer of ``/metrics`` (Prometheus text format); engines are added up."""
    sums = {DRAFTS: 0.0, DRAFT_TOKENS: 0.0, ACCEPTED: 0.0}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        if match["name"] in sums:
            sums[match["name"]] += float(match["value"])
        elif match["name"] == ACCEPTED_AT and (position := _POSITION.search(match["labels"] or "")):
            number = int(position[1])
            positions[number] = positions.get(number, 0.0) + float(match["value"])
    at = tuple(positions.get(number, 0.0) for number in range(max(positions, default=-1) + 1))
    return Counters(sums[DRAFTS], sums[DRAFT_TOKENS], sums[ACCEPTED], at)


def first_difference(without: Sequence[int], with_draft: Sequence[int]) -> Optional[int]:
    """The place of the first token that differs; None when both are the same."""
    for place, (left, right) in enumerate(zip(without, with_draft)):
        if left != right:
            return place
    return None if len(without) == len(with_draft) else min(len(without), len(with_draft))


def as_json(report: Report) -> dict[str, Any]:
    """The report as ``report.json`` holds it."""
    return {
        "schema": SCHEMA,
        "verifier": report.verifier,
        "draft": report.draft,
        "predicted_acceptance": _rounded(report.predicted),
        "settings": report.settings,
        "sets": [_set_json(measured) for measured in report.sets],
    }


def as_markdown(report: Report) -> str:
    """The report as a table with what stands out below it."""
    names = [measured.name for measured in report.sets]
    lines = [
        f"# Draft {report.draft}",
        "",
        f"Verifier {report.verifier}, greedy, the same prompts without and with the draft.",
        "",
        _row(["", *names]),
        _row(["---", *("---:" for _ in names)]),
    ]
    for label, values in _rows(report):
        lines.append(_row([label, *values]))
    mismatches = [(measured.name, item) for measured in report.sets for item in measured.mismatches]
    if mismatches:
        lines += ["", "Texts that differ, at their first differing token:", ""]
        lines += [f"* {name}, prompt {item.prompt}: {describe(item)}" for name, item in mismatches]
    return "\n".join(lines) + "\n"


def describe(item: Mismatch) -> str:
    """A mismatch in words."""
    gap = "" if item.logprob_gap is None else f", log-probability gap {item.logprob_gap:.4f}"
    return f"token {item.position}: {item.without!r} without, {item.with_draft!r} with the draft{gap}"


def _rows(report: Report) -> list[tuple[str, list[str]]]:
    sets = report.sets
    depth = max((len(measured.counters.accepted_at) for measured in sets), default=0)
    rows = [
        ("prompts", [f"{measured.prompts:,}" for measured in sets]),
        ("mean acceptance length", [_figure(measured.counters.acceptance_length) for measured in sets]),
        ("predicted by validation", [_figure(report.predicted) for _ in sets]),
    ]
    for position in range(depth):
        values = [dict(enumerate(measured.counters.acceptance_at)).get(position) for measured in sets]
        rows.append((f"accepted at position {position + 1}", [_percent(value) for value in values]))
    return [
        *rows,
        ("drafts", [f"{measured.counters.drafts:,.0f}" for measured in sets]),
        ("tokens/s without the draft", [f"{measured.tokens_per_second[0]:,.1f}" for measured in sets]),
        ("tokens/s with the draft", [f"{measured.tokens_per_second[1]:,.1f}" for measured in sets]),
        ("speed-up", [f"{measured.speed_up:.2f}x" for measured in sets]),
        ("equal texts", [f"{measured.equal} of {measured.prompts}" for measured in sets]),
    ]


def _set_json(measured: Measured) -> dict[str, Any]:
    counters = measured.counters
    without, with_draft = measured.tokens_per_second
    return {
        "name": measured.name,
        "prompts": measured.prompts,
        "acceptance_length": _rounded(counters.acceptance_length),
        "acceptance_at": [round(value, 4) for value in counters.acceptance_at],
        "drafts": int(counters.drafts),
        "draft_tokens": int(counters.draft_tokens),
        "accepted_tokens": int(counters.accepted),
        "tokens": {"without": measured.tokens[0], "with": measured.tokens[1]},
        "seconds": {"without": round(measured.seconds[0], 3), "with": round(measured.seconds[1], 3)},
        "tokens_per_second": {"without": round(without, 2), "with": round(with_draft, 2)},
        "speed_up": round(measured.speed_up, 4),
        "equal": measured.equal,
        "mismatches": [
            {
                "prompt": item.prompt,
                "position": item.position,
                "without": item.without,
                "with": item.with_draft,
                "logprob_gap": _rounded(item.logprob_gap),
            }
            for item in measured.mismatches
        ],
    }


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 4)


def _figure(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:.1%}"


def totals(measured: Sequence[Measured]) -> Mapping[str, float]:
    """Figures over all sets, for the stage's evidence."""
    prompts = sum(item.prompts for item in measured)
    return {
        "prompts": float(prompts),
        "equal_share": sum(item.equal for item in measured) / prompts if prompts else 0.0,
        "drafts": sum(item.counters.drafts for item in measured),
    }
