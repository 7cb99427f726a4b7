"""The quality report of responses: loops, shares, lengths, and what the thresholds refuse."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan import quality
from pipeline.plan.quality import Response, Thresholds, loops, measure, verdicts

GOOD = Response("a", 10, tuple(range(100)), False, True)
LIMITS = Thresholds(truncated=0.2, missing=0.05, repetitive=0.1, reasoning=0.0)
THINKING = dataclasses.replace(LIMITS, reasoning=0.9)


@pytest.mark.parametrize(
    ("tokens", "loop"),
    [
        ((), False),
        (tuple(range(500)), False),
        ((7,) * 64, True),
        ((7,) * 63, False),
        ((*range(100), *((1, 2, 3) * 30)), True),
        ((*((1, 2, 3) * 30), *range(100)), False),
        (tuple(range(32)) * 4, True),
        (tuple(range(33)) * 8, False),
        (tuple(range(20)) * 3, False),
    ],
)
def test_loops(tokens: tuple[int, ...], loop: bool) -> None:
    assert loops(tokens) is loop


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=32), st.lists(st.integers(0, 50_000), max_size=50))
def test_every_repeated_end_is_found(period: list[int], start: list[int]) -> None:
    assert loops((*start, *(period * max(4, -(-64 // len(period))))))


def test_the_report() -> None:
    rows = [GOOD, dataclasses.replace(GOOD, id="b", truncated=True, reasoning=False), Response("b", 5, (), False, None)]
    report = measure(rows, prompts=4, answered=2)
    assert (report.rows, report.missing, report.duplicates, report.tokens) == (3, 2, 1, 225)
    assert report.truncated == pytest.approx(1 / 3) and report.empty == pytest.approx(1 / 3)
    assert report.reasoning == 0.5
    assert report.lengths == {"<=64": 1, "<=128": 2}


@pytest.mark.parametrize(
    ("rows", "prompts", "answered", "limits", "wrong"),
    [
        ([GOOD], 1, 1, LIMITS, []),
        ([], 1, 0, LIMITS, ["responses", "missing responses"]),
        ([GOOD], 10, 1, LIMITS, ["missing responses"]),
        ([dataclasses.replace(GOOD, truncated=True)], 1, 1, LIMITS, ["truncated"]),
        ([dataclasses.replace(GOOD, truncated=True)], 1, 1, dataclasses.replace(LIMITS, truncated=1.0), []),
        ([dataclasses.replace(GOOD, generated=())], 1, 1, LIMITS, ["empty"]),
        ([dataclasses.replace(GOOD, generated=(1,) * 99)], 1, 1, LIMITS, ["repetitive"]),
        ([GOOD, GOOD], 1, 1, LIMITS, ["duplicate rows"]),
        ([dataclasses.replace(GOOD, reasoning=False)], 1, 1, THINKING, ["with reasoning"]),
        ([dataclasses.replace(GOOD, reasoning=None)], 1, 1, THINKING, ["with reasoning"]),
    ],
)  # fmt: skip
def test_thresholds(rows: list[Response], prompts: int, answered: int, limits: Thresholds, wrong: list[str]) -> None:
    assert [name for name, _, _, ok in verdicts(measure(rows, prompts, answered), limits) if not ok] == wrong


def test_reasoning_is_read_from_whichever_field() -> None:
    assert quality.reasoning_of({"reasoning": "a", "content": "b"}) == "a"
    assert quality.reasoning_of({"reasoning": None, "reasoning_content": "c"}) == "c"
    assert quality.reasoning_of({"content": "b", "reasoning": "  "}) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Paris.", None),
        ("<think>hm</think>Paris.", True),
        ("<think>\n\n</think>Paris.", False),
        ("hm</think>Paris.", True),
        ("<think>hm, cut", True),
    ],
)
def test_thinking_between_marks(text: str, found: bool | None) -> None:
    assert quality.thinks(text) is found
