"""Presets: which data set and split each is drawn from, with a ``datasets`` that notes what it is asked for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.plan.prompts import PRESETS
from pipeline.stages.prompts import DRAWN_FROM, _from_preset

ROW = {"messages": [{"role": "user", "content": "Where is Malta?"}]}


class Datasets:
    """Endless streams of one row."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bool]] = []

    def load_dataset(self, name: str, *, split: str, streaming: bool) -> Datasets:
        self.asked.append((name, split, streaming))
        return self

    def shuffle(self, *, seed: int, buffer_size: int) -> Any:
        return iter(lambda: ROW, None)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_is_streamed_from_the_split_that_its_data_set_has(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = Datasets()
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    stage: Any = SimpleNamespace(parameters={"samples": 5, "held_out": 2, "seed": 0})
    found = list(_from_preset(stage, preset))
    assert len(found) == DRAWN_FROM * 7, "no more is read than a draw needs"
    split = "train_sft" if preset == "ultrachat" else "train"
    assert datasets.asked == [(PRESETS[preset], split, True)]
