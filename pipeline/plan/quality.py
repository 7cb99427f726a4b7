"""The quality of synthesized responses: figures, and whether they pass the user's thresholds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

LOOP_TOKENS = 64
"""How much of a response's end must repeat itself to count as a loop."""

LOOP_TIMES = 4
LONGEST_PERIOD = 32

_EDGES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class Response:
    """What of one row counts.

    :param prompt: number of prompt tokens.
    :param generated: the generated tokens.
    :param reasoning: whether the model thought aloud; None where the row does not say.
    """

    id: str
    prompt: int
    generated: tuple[int, ...]
    truncated: bool
    reasoning: Optional[bool]


@dataclass(frozen=True)
class Report:
    """Figures of a set of responses. Shares are 0 to 1, of all rows; ``missing`` is of the prompts.

    :param lengths: rows by length of the response, ``"<=128": 5``.
    """

    rows: int
    prompts: int
    missing: int
    tokens: int
    truncated: float
    empty: float
    repetitive: float
    reasoning: Optional[float]
    duplicates: int
    lengths: dict[str, int]


@dataclass(frozen=True)
class Thresholds:
    """What is still good enough: shares 0 to 1."""

    truncated: float
    missing: float
    repetitive: float
    reasoning: float


def measure(responses: Sequence[Response], prompts: int, answered: int) -> Report:
    """The report.

    :param prompts: how many were asked; ``answered``: how many of them have a response.
    """
    rows = len(responses)

    def share(count: int) -> float:
        return count / rows if rows else 0.0

    known = [response.reasoning for response in responses if response.reasoning is not None]
    ids = Counter(response.id for response in responses)
    return Report(
        rows=rows,
        prompts=prompts,
        missing=prompts - answered,
        tokens=sum(response.prompt + len(response.generated) for response in responses),
        truncated=share(sum(response.truncated for response in responses)),
        empty=share(sum(not response.generated for response in responses)),
        repetitive=share(sum(loops(response.generated) for response in responses)),
        reasoning=sum(known) / len(known) if known else None,
        duplicates=sum(count - 1 for count in ids.values()),
        lengths=histogram(len(response.generated) for response in responses),
    )


def loops(tokens: Sequence[int]) -> bool:
    """Whether the response ends with the same over and over: a period of up to 32 tokens, four times and 64 long."""
    for period in range(1, LONGEST_PERIOD + 1):
        length = max(LOOP_TOKENS, LOOP_TIMES * period)
        if len(tokens) < length:
            continue
        end = tokens[-length:]
        if all(end[place] == end[place - period] for place in range(period, length)):
            return True
    return False


def histogram(lengths: Iterable[int]) -> dict[str, int]:
    """Counts by doubling lengths; empty ones are left out."""
    counts: Counter[str] = Counter()
    for length in lengths:
        edge = next((edge for edge in _EDGES if length <= edge), None)
        counts[f"<={edge}" if edge is not None else f">{_EDGES[-1]}"] += 1
    order = [*(f"<={edge}" for edge in _EDGES), f">{_EDGES[-1]}"]
    return {name: counts[name] for name in order if name in counts}


def verdicts(report: Report, limits: Thresholds) -> tuple[tuple[str, float, str, bool], ...]:
    """Each figure with a limit: name, value, unit, and whether it passes."""
    missing = report.missing / report.prompts if report.prompts else 1.0
    found = [
        ("responses", float(report.rows), "rows", report.rows > 0),
        ("missing responses", missing, "share", missing <= limits.missing),
        ("truncated", report.truncated, "share", report.truncated <= limits.truncated),
        ("empty", report.empty, "share", report.empty == 0.0),
        ("repetitive", report.repetitive, "share", report.repetitive <= limits.repetitive),
        ("duplicate rows", float(report.duplicates), "rows", report.duplicates == 0),
    ]
    if report.reasoning is not None or limits.reasoning > 0:
        found.append(
            ("with reasoning", report.reasoning or 0.0, "share", (report.reasoning or 0.0) >= limits.reasoning)
        )
    return tuple((name, round(value, 4), unit, ok) for name, value, unit, ok in found)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning of a chat message, from whichever field the server uses; empty where there is none."""
    for name in ("reasoning", "reasoning_content", "thinking"):
        value = message.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def thinks(text: str) -> Optional[bool]:
    """Whether a decoded response holds reasoning between its marks; None where there are no marks at all."""
    for opening, closing in (("<think>", "</think>"), ("<|channel|>analysis", "<|end|>")):
        if opening in text or closing in text:
            inside = text.rpartition(opening)[2] if opening in text else text
            return bool(inside.partition(closing)[0].strip())
    return None
