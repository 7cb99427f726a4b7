"""Prompt sets: conversations without their answers, each once, known by their content. Pure.

A row may be what is common: ``conversations`` of ``{"from": "human", "value"}``, ``messages`` of ``{"role",
"content"}``, or a single text under ``prompt``, ``question`` or ``instruction``. Of a conversation the system and user
turns count, the assistant's are generated anew. A prompt's id is a hash of its turns: the same in every run.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

PRESETS = {
    "open-perfectblend": "mlabonne/open-perfectblend",
    "ultrachat": "HuggingFaceH4/ultrachat_200k",
    "magpie": "Magpie-Align/Magpie-Llama-3.1-Pro-300K-Filtered",
}
"""Names that speculators 0.9.0 knows, with the data set on the hub that each stands for."""

SPLITS = {"ultrachat": "train_sft"}
"""The split to draw from, where it is not called ``train``."""

_USER, _SYSTEM = ("user", "human"), ("system",)
_SINGLE = ("prompt", "question", "instruction")


class RowError(ValueError):
    """A row is no prompt; the message says why."""


@dataclass(frozen=True)
class Prompt:
    """System and user turns as ``(role, text)``; the roles are ``system`` and ``human``."""

    turns: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        """The same for the same turns, apart from white space at their ends and runs of it inside."""
        words = [[role, " ".join(text.split())] for role, text in self.turns]
        return hashlib.sha256(json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def row(self) -> dict[str, Any]:
        """As a line of ``prompts.jsonl``."""
        return {"id": self.id, "conversations": [{"from": role, "value": text} for role, text in self.turns]}


@dataclass(frozen=True)
class BrokenLine:
    """A line that holds no prompt: its number, counted from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True)
class Selection:
    """What was chosen: prompts to train on, prompts held out, and the duplicates that were left out."""

    prompts: tuple[Prompt, ...]
    held_out: tuple[Prompt, ...]
    duplicates: int


def parse_row(row: Any) -> Prompt:
    """The prompt of a row.

    :raises RowError: when it has no user turn, or something in it has the wrong type.
    """
    if not isinstance(row, Mapping):
        raise RowError("it is not a JSON object")
    for key in ("conversations", "messages", "prompt"):
        if isinstance(row.get(key), (list, tuple)):
            return Prompt(tuple(_turns(row[key])))
    for key in _SINGLE:
        if isinstance(row.get(key), str) and row[key].strip():
            return Prompt((("human", row[key]),))
    raise RowError("it has no conversations, messages, prompt, question or instruction")


def parse_lines(lines: Iterable[str]) -> Iterator[Union[Prompt, BrokenLine]]:
    """Prompts and broken lines of a JSON lines file, in order; empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield parse_row(json.loads(line))
        except RecursionError:
            yield BrokenLine(number, "it is nested too deep")
        except RowError as error:
            yield BrokenLine(number, str(error))
        except ValueError as error:
            yield BrokenLine(number, f"it is not JSON ({error})")


def select(prompts: Iterable[Prompt], count: Optional[int], held_out: int, seed: int) -> Selection:
    """``count`` prompts and ``held_out`` others, without duplicates, drawn with the seed; they keep their order.

    With a larger count the same prompts are drawn first, so that a grown run keeps what it has. What is held out does
    not depend on the count.

    :param count: None for all.
    """
    once: dict[str, Prompt] = {}
    seen = 0
    for prompt in prompts:
        seen += 1
        once.setdefault(prompt.id, prompt)
    found = list(once.values())
    order = list(range(len(found)))
    random.Random(seed).shuffle(order)
    aside, rest = order[:held_out], order[held_out:]
    chosen = sorted(rest if count is None else rest[:count])
    return Selection(
        tuple(found[index] for index in chosen), tuple(found[index] for index in sorted(aside)), seen - len(found)
    )


def summary(broken: Sequence[BrokenLine], most: int = 5) -> str:
    """The broken lines in one sentence's end: ``lines 3 and 7``, with the first reasons."""
    numbers = ", ".join(str(line.number) for line in broken[:20]) + (", …" if len(broken) > 20 else "")
    reasons = "; ".join(f"line {line.number}: {line.reason}" for line in broken[:most])
    return f"{'lines' if len(broken) > 1 else 'line'} {numbers} ({reasons})"


def _turns(items: Sequence[Any]) -> Iterator[tuple[str, str]]:
    user = False
    for place, item in enumerate(items, 1):
        if not isinstance(item, Mapping):
            raise RowError(f"turn {place} is not an object")
        role = item.get("role") or item.get("from")
        text = item.get("content") if item.get("content") is not None else item.get("value")
        if role in _USER or role in _SYSTEM:
            if not isinstance(text, str):
                raise RowError(f"turn {place} has no text")
            if not text.strip():
                continue
            user = user or role in _USER
            yield ("human" if role in _USER else "system"), text
    if not user:
        raise RowError("it has no user turn")
