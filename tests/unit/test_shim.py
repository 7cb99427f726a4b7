"""The stand-in for a verifier with remote code: a plain config at the top, everything else linked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import shim
from pipeline.plan import shim as plan
from pipeline.plan import verifier_config
from pipeline.plan.verifier_config import ConfigError

KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
    "model_type": "kimi_k25",
    "bos_token_id": 5,
    "eos_token_id": 7,
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "vocab_size": 163840,
        "max_position_embeddings": 262144,
        "eos_token_id": 9,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
    },
}


def test_what_the_pipeline_reads_of_a_nested_config() -> None:
    found = verifier_config.parse(KIMI, "/m")
    assert (found.layers, found.hidden_size, found.vocab_size) == (61, 7168, 163840)
    assert found.nested and found.remote_code and found.dtype == "bfloat16" and found.max_positions == 262144
    assert verifier_config.extraction_layers(found.layers) == (2, 30, 58, 61)


def test_a_plain_config() -> None:
    assert plan.needed(KIMI) and not plan.needed({"model_type": "llama"})
    found = plan.plain(KIMI)
    assert found["model_type"] == "deepseek_v3" and found["architectures"] == ["DeepseekV3ForCausalLM"]
    assert "auto_map" not in found and "text_config" not in found and "vision_config" not in found
    assert (found["bos_token_id"], found["eos_token_id"], found["kv_lora_rank"]) == (5, 9, 512)
    assert not plan.needed(found)


def test_the_folder_follows_the_verifier(tmp_path: Path) -> None:
    verifier, folder = tmp_path / "verifier", tmp_path / "shim"
    verifier.mkdir()
    (verifier / "config.json").write_text(json.dumps(KIMI))
    (verifier / "configuration_kimi_k25.py").write_text("raise SystemExit")
    for name in ("model-1.safetensors", "model.safetensors.index.json", "tokenizer_config.json"):
        (verifier / name).write_text("{}")
    assert shim.stand_in(verifier, folder) == folder
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model-1.safetensors", "model.safetensors.index.json", "tokenizer_config.json",
    }  # fmt: skip
    assert (folder / "model-1.safetensors").resolve() == verifier / "model-1.safetensors"
    assert not (folder / "config.json").is_symlink() and not verifier_config.read(str(folder)).remote_code
    (verifier / "model-1.safetensors").rename(verifier / "model-2.safetensors")
    shim.stand_in(verifier, folder)
    assert (folder / "model-2.safetensors").exists() and not (folder / "model-1.safetensors").is_symlink()


def test_a_plain_verifier_needs_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert shim.stand_in(tmp_path, tmp_path / "shim") == tmp_path and not (tmp_path / "shim").exists()


def test_a_type_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "new", "auto_map": {"AutoConfig": "x.Y"}}')
    with pytest.raises(ConfigError, match="model_type: model_type 'new'"):
        shim.stand_in(tmp_path, tmp_path / "shim")
