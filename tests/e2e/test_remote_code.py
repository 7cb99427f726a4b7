"""A small verifier of Kimi-K2.5's shape: nested ``text_config``, and a tokenizer that is Python code of its folder.

speculators' own commands run for real; the server is a few lines that answer as vLLM does.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fixtures import models
from fixtures.stages import Workspace, prompts

PYTHON = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE") or Path(__file__).parents[2] / ".pipeline") / "ml/bin/python"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON.exists(), reason="the ML environment is not there")]

CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "auto_map": {"AutoConfig": "configuration_odd.OddConfig"},
    "text_config": {**models.CONFIG, "model_type": "kimi_k2", "vocab_size": 128},
}
TOKENIZER = """
from transformers import PreTrainedTokenizerFast

class OddTokenizer(PreTrainedTokenizerFast):
    def decode(self, *arguments, **options):
        return "by the folder's own code: " + super().decode(*arguments, **options)
"""
CONFIGURATION = """
from transformers import PretrainedConfig

class OddConfig(PretrainedConfig):
    model_type = "kimi_k25"
"""
WORDS = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
tokenizer = Tokenizer(models.WordLevel({f"t{number}": number for number in range(128)}, unk_token="t0"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(sys.argv[1])
"""


@pytest.fixture
def verifier(tmp_path: Path) -> str:
    folder = models.write(tmp_path / "verifier")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "configuration_odd.py").write_text(CONFIGURATION)
    (folder / "tokenization_odd.py").write_text(TOKENIZER)
    code = {"AutoTokenizer": [None, "tokenization_odd.OddTokenizer"]}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "OddTokenizer", "auto_map": code, "unk_token": "t0", "eos_token": "t2"})
    )
    subprocess.run([PYTHON, "-c", WORDS, folder / "tokenizer.json"], check=True)
    return str(folder)


@pytest.fixture
def server(verifier: str):
    """Answers every conversation with the same tokens."""
    choice = {"message": {"role": "assistant", "content": "t7 t8"}, "token_ids": [7, 8, 2], "finish_reason": "stop"}
    answers = {
        "/health": {},
        "/metrics": {},
        "/v1/models": {"data": [{"id": verifier, "root": verifier, "max_model_len": 512}]},
        "/v1/completions": {"choices": [{"text": "t7"}]},
        "/v1/chat/completions": {"prompt_token_ids": [3, 4, 5], "choices": [choice], "usage": {"completion_tokens": 3}},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


@pytest.fixture
def workspace(tmp_path: Path, verifier: str) -> Workspace:
    found = Workspace(tmp_path / "workspace", str(PYTHON), verifier=verifier)
    found.root.mkdir()
    source = found.root / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in prompts()[:8]))
    assert found.run("prompts", source=str(source), samples=8, held_out=0).code == 0
    return found


def test_answers_and_data_set_with_the_tokenizers_own_code(workspace: Workspace, server: str, tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    given = {"endpoint": server, "max_tokens": 16, "trust_remote_code": True}
    ended = workspace.run("synthesize", env=env, max_repetitive=1.0, **given)
    assert ended.code == 0, ended.output
    assert ended.evidence["answered now"] == 8
    rows = [json.loads(line) for line in workspace.run_of().responses.read_text().splitlines()]
    assert {row["text"].partition(":")[0] for row in rows} == {"by the folder's own code"}
    assert rows[0]["input_ids"] == [3, 4, 5, 7, 8, 2]

    prepared = workspace.run("prepare", env=env, seq_length=64, trust_remote_code=True)
    assert prepared.code == 0, prepared.output
    assert prepared.evidence["rows"] == 8 and prepared.evidence["tokens to learn"] == 24


def test_code_that_was_not_allowed_is_named_before_a_prompt_is_asked(
    workspace: Workspace, server: str, tmp_path: Path
) -> None:
    ended = workspace.run("synthesize", endpoint=server, max_tokens=16)
    assert ended.code == 1 and ended.failure is not None and ended.failure.klass == "remote_code"
    assert ended.failure.where.endswith("tokenizer_config.json: auto_map")
    assert "trust_remote_code=true" in ended.failure.remedy
    assert not workspace.run_of().responses.exists()
