"""Presets from a hub on loopback, laid out as on the hub: a card and parquet files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from fixtures.hub import Hub
from fixtures.ml_environment import free_port
from fixtures.stages import Workspace

PYTHON = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE") or Path(__file__).parents[2] / ".pipeline") / "ml/bin/python"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON.exists(), reason="the ML environment is not there")]

SPLIT = "  - split: {0}\n    path: data/{0}-*\n"
CARD = "---\nconfigs:\n- config_name: default\n  data_files:\n{}---\n"

PARQUET = """
import sys
from datasets import Dataset
for part in range(2):
    rows = [
        [{"from": "human", "value": f"Question {part * 100 + number % 90}?"}, {"from": "gpt", "value": "An answer."}]
        for number in range(100)
    ]
    rows.append([{"from": "gpt", "value": "nobody asked"}])
    Dataset.from_dict({"conversations": rows, "source": ["test"] * len(rows)}).to_parquet(
        f"{sys.argv[1]}/train-{part:05}-of-00002.parquet"
    )
"""

SPLITS = """
import sys
from datasets import Dataset
for split in sys.argv[2:]:
    texts = [f"A question of {split}, number {number}?" for number in range(50)]
    rows = [[{"content": text, "role": "user"}, {"content": "An answer.", "role": "assistant"}] for text in texts]
    Dataset.from_dict({"prompt": texts, "messages": rows}).to_parquet(f"{sys.argv[1]}/{split}-00000-of-00001.parquet")
"""


@pytest.fixture
def hub(tmp_path: Path):
    data = tmp_path / "hub" / "data"
    data.mkdir(parents=True)
    (data.parent / "README.md").write_text(CARD.format(SPLIT.format("train")))
    subprocess.run([PYTHON, "-c", PARQUET, data], check=True)
    server = Hub("mlabonne/open-perfectblend", data.parent)
    yield server
    server.close()


def test_a_preset_is_drawn_from_the_hub(tmp_path: Path, hub: Hub) -> None:
    workspace = Workspace(tmp_path / "workspace", str(PYTHON))
    workspace.root.mkdir()
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache")}
    first = workspace.run("prompts", env=env, samples=40, held_out=8)
    assert first.code == 0, first.output
    assert first.evidence["prompts"] == 40 and first.evidence["held out"] == 8 and first.evidence["distinct"] == 48
    rows = [json.loads(line) for line in workspace.run_of().prompts.read_text().splitlines()]
    assert all(row["conversations"][0]["value"].startswith("Question ") for row in rows)
    assert any("parquet" in path for path in hub.asked) and not any("huggingface.co" in path for path in hub.asked)

    asked = len(hub.asked)
    second = workspace.run("prompts", env=env, samples=40, held_out=8)
    assert "up to date" in second.messages and len(hub.asked) == asked

    again = workspace.run("prompts", env=env, run="again", samples=40, held_out=8)
    assert again.code == 0
    assert workspace.run_of("again").prompts.read_text() == workspace.run_of().prompts.read_text(), "the seed decides"


def test_ultrachat_is_drawn_from_its_split_for_training(tmp_path: Path) -> None:
    data = tmp_path / "hub" / "data"
    data.mkdir(parents=True)
    splits = ("train_sft", "test_sft", "train_gen", "test_gen")
    (data.parent / "README.md").write_text(CARD.format("".join(map(SPLIT.format, splits))))
    subprocess.run([PYTHON, "-c", SPLITS, data, *splits], check=True)
    server = Hub("HuggingFaceH4/ultrachat_200k", data.parent)
    workspace = Workspace(tmp_path / "workspace", str(PYTHON))
    workspace.root.mkdir()
    env = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "cache")}
    ended = workspace.run("prompts", env=env, source="ultrachat", samples=10, held_out=4)
    server.close()
    assert ended.code == 0, ended.output
    rows = [json.loads(line) for line in workspace.run_of().prompts.read_text().splitlines()]
    assert len(rows) == 10
    assert all(row["conversations"][0]["value"].startswith("A question of train_sft,") for row in rows)


def test_a_preset_that_the_hub_does_not_have_names_what_to_do(tmp_path: Path, hub: Hub) -> None:
    workspace = Workspace(tmp_path / "workspace", str(PYTHON))
    workspace.root.mkdir()
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache")}
    ended = workspace.run("prompts", env=env, source="magpie", samples=10)
    assert ended.code == 1 and ended.failure is not None and ended.failure.klass == "hub"
    assert hub.url in ended.failure.where and "parameter source" in ended.failure.where
    assert "HF_ENDPOINT" in ended.failure.remedy and "source=/path/to/prompts.jsonl" in ended.failure.remedy


def test_a_hub_that_is_not_reachable(tmp_path: Path) -> None:
    """The hub's own client tries for some 20 s before it gives up."""
    hub = f"http://127.0.0.1:{free_port()}"
    workspace = Workspace(tmp_path, str(PYTHON))
    ended = workspace.run("prompts", env={"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "cache")}, samples=5)
    assert ended.code == 1 and ended.failure is not None and ended.failure.klass == "hub"
    assert ended.failure.where == f"{hub}/datasets/mlabonne/open-perfectblend: parameter source"
    assert hub in ended.failure.cause and "source=/path/to/prompts.jsonl" in ended.failure.remedy
    assert not workspace.run_of().prompts.exists()
