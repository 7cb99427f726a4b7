"""What is there of a run: counts that forecasts start from. Pure data; the agent gathers it from the host's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class RunState:
    """A run as far as it has come. None where a stage has not finished, or nobody has counted.

    :param prompts: to train on.
    :param answers, answer_tokens: rows of ``responses.jsonl`` and their tokens.
    :param rows, tokens: of the prepared data set.
    :param states_files, states_bytes: hidden states that are extracted already.
    :param captured_bytes: hidden states that came with the answers.
    :param vocabularies: sizes of the draft vocabularies that are mapped.
    :param checkpoints: that training has saved.
    """

    prompts: Optional[int] = None
    answers: Optional[int] = None
    answer_tokens: Optional[int] = None
    rows: Optional[int] = None
    tokens: Optional[int] = None
    states_files: int = 0
    states_bytes: int = 0
    captured_bytes: int = 0
    vocabularies: tuple[int, ...] = ()
    checkpoints: int = 0
