"""Prompt sets: what counts as a prompt, what is said about a line that is none, and what is drawn."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan.prompts import BrokenLine, Prompt, RowError, parse_lines, parse_row, select, summary

SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, [("human", "a")]),
        ({"messages": [SYSTEM, {"role": "user", "content": "u"}]}, [("system", "s"), ("human", "u")]),
        ({"prompt": [{"role": "user", "content": "u"}]}, [("human", "u")]),
        ({"prompt": "x"}, [("human", "x")]),
        ({"question": "q", "answer": "a"}, [("human", "q")]),
        ({"instruction": "i"}, [("human", "i")]),
        ({"messages": [{"role": "user", "content": " "}, {"role": "user", "content": "u"}]}, [("human", "u")]),
    ],
)  # fmt: skip
def test_rows(row: dict[str, object], turns: list[tuple[str, str]]) -> None:
    assert list(parse_row(row).turns) == turns


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "not a JSON object"),
        ({}, "no conversations"),
        ({"text": "x"}, "no conversations"),
        ({"prompt": "  "}, "no conversations"),
        ({"conversations": [{"from": "gpt", "value": "b"}]}, "no user turn"),
        ({"conversations": []}, "no user turn"),
        ({"conversations": ["a"]}, "turn 1 is not an object"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "turn 1 has no text"),
    ],
)
def test_rows_that_are_no_prompt(row: object, words: str) -> None:
    with pytest.raises(RowError, match=words):
        parse_row(row)


def test_broken_lines_are_told_by_their_number() -> None:
    lines = ['{"prompt": "a"}\n', "\n", "{broken\n", '{"x": 1}\n', '{"prompt": "b"}', "[" * 100_000]
    found = list(parse_lines(lines))
    assert [item.turns[0][1] if isinstance(item, Prompt) else item.number for item in found] == ["a", 3, 4, "b", 6]
    broken = [item for item in found if isinstance(item, BrokenLine)]
    assert summary(broken).startswith("lines 3, 4, 6 (line 3: it is not JSON")


PROMPTS = st.lists(st.text(min_size=1).filter(lambda text: bool(text.strip())), max_size=60)


@given(PROMPTS, st.integers(0, 70), st.integers(0, 20), st.integers())
def test_what_is_drawn(texts: list[str], count: int, aside: int, seed: int) -> None:
    prompts = [Prompt((("human", text),)) for text in texts]
    chosen = select(prompts, count, aside, seed)
    ids = [prompt.id for prompt in (*chosen.prompts, *chosen.held_out)]
    assert len(set(ids)) == len(ids), "nobody twice, and nobody on both sides"
    distinct = len({prompt.id for prompt in prompts})
    assert chosen.duplicates == len(prompts) - distinct
    assert len(chosen.held_out) == min(aside, distinct)
    assert len(chosen.prompts) == min(count, distinct - len(chosen.held_out))
    assert select(prompts, count, aside, seed) == chosen
    more = select(prompts, count + 5, aside, seed)
    assert {prompt.id for prompt in chosen.prompts} <= {prompt.id for prompt in more.prompts}
    assert more.held_out == chosen.held_out
    for prompt in chosen.prompts:
        assert parse_row(json.loads(json.dumps(prompt.row()))) == prompt


def test_white_space_makes_no_other_prompt() -> None:
    assert Prompt((("human", "a  b\n"),)).id == Prompt((("human", "a b"),)).id != Prompt((("human", "ab"),)).id
