"""The exact lines of the three kinds of server on 8 GPUs for Kimi-K2.5, and of stages that use a running one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.plan import stage_commands
from pipeline.plan.catalog import stage_named
from pipeline.plan.environment import Environment
from pipeline.plan.stage import resolve

GPU = Environment("/ml/bin/python", True, "/ml/lib", {"vllm": "0.32.0", "speculators": "0.9.0"})
FIXED = (
    "NO_COLOR=1 PYTHONUNBUFFERED=1 VLLM_ENGINE_READY_TIMEOUT_S=7200 VLLM_LOGGING_COLOR=0 /ml/bin/vllm serve {verifier}"
    " --host 127.0.0.1 --port 8000 --tensor-parallel-size 8 --max-model-len 16384 --trust-remote-code"
)
QUIET = " --disable-access-log-for-endpoints /health,/metrics"
EXTRACTION = (
    """ --speculative-config '{"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config":"""
    """ {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58, 61]}}}'"""
    """ --kv-transfer-config '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer","""
    """ "kv_connector_extra_config": {"shared_storage_path": "/data/.eagle_console/states","""
    """ "num_writer_threads": 8}}'"""
)
DRAFT = """ --speculative-config '{"model": "/data/draft_1k", "method": "eagle3", "num_speculative_tokens": 3}'"""


@pytest.fixture
def verifier(tmp_path: Path) -> str:
    text = {"model_type": "kimi_k2", "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 163840}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "text_config": text}))
    return str(tmp_path)


def line(stage: str, verifier: str, **given: Any) -> str:
    parameters = resolve(stage_named(stage), given, {"verifier": verifier, "tensor_parallel": 8})
    return stage_commands.command(stage, parameters, GPU, "/data").line


@pytest.mark.parametrize(
    ("given", "more"),
    [({}, ""), ({"kind": "extraction"}, EXTRACTION), ({"kind": "draft", "draft": "/data/draft_1k"}, DRAFT)],
)
def test_the_line_of_each_kind(verifier: str, given: dict[str, str], more: str) -> None:
    found = line("serve", verifier, max_model_len=16384, trust_remote_code=True, **given)
    assert found == FIXED.format(verifier=verifier) + more + QUIET


def test_a_draft_server_needs_a_draft(verifier: str) -> None:
    with pytest.raises(ValueError, match="kind=draft needs draft=PATH"):
        line("serve", verifier, kind="draft")


def test_a_running_server_takes_the_place_of_ones_own(verifier: str) -> None:
    url = "http://127.0.0.1:8000"
    own = line("extract", verifier).splitlines()
    assert len(own) == 2 and " serve " in own[0]
    (asked,) = line("extract", verifier, endpoint=url).splitlines()
    assert "generate-offline-data" in asked and f"--endpoint {url}/v1" in asked
    (asked,) = line("synthesize", verifier, endpoint=url).splitlines()
    assert asked.startswith("/ml/bin/speculators regenerate-responses")
    assert len(line("bench", verifier).splitlines()) == 2
    (only,) = line("bench", verifier, plain_endpoint=url).splitlines()
    assert '"method": "eagle3"' in only
    (only,) = line("bench", verifier, draft_endpoint=url).splitlines()
    assert "--speculative-config" not in only


def test_answers_of_a_tokenizer_with_code_of_its_own(verifier: str) -> None:
    trusting = line("synthesize", verifier, endpoint="http://127.0.0.1:8000", trust_remote_code=True)
    assert trusting.startswith("/ml/bin/python -P ") and "trusting.py regenerate-responses" in trusting
