"""Real vLLM starts broken on purpose, each explained with its cause: one process imports vLLM, each start is a fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.broken_start_causes import CAUSES, Cause

from eagle_console.commands.explain_log import read
from pipeline import cpu
from pipeline.plan import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "fixtures" / "broken_starts.py"

QUICK = (
    "truncated-shard", "pointer-file", "empty-file", "missing-shard", "inconsistent-config", "wrong-architecture",
    "unknown-model-type", "broken-config", "wrong-path", "port-in-use", "context-too-long", "not-divisible",
    "unknown-option", "draft-misfit", "killed-worker", "killed-engine", "killed-server",
)  # fmt: skip
"""All of them end before they are ready; the recorded logs have the rest."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of the starts, made one after another."""
    pipeline = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
    python, verifier = pipeline / "ml" / "bin" / "python", pipeline / "SmolLM2-135M-Instruct"
    if not python.exists() or not verifier.is_dir():
        message = f"no pipeline environment in {pipeline}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    out = tmp_path_factory.mktemp("starts")
    stub = cpu.write_stub(environment.inspect(str(python)), str(out))
    variables = {**os.environ, "PYTHONPATH": stub, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1"}
    command = [str(python), str(SCRIPT), str(verifier), str(out / "logs"), *QUICK]
    made = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=540, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    sys.stdout.write(made.stdout)
    return out / "logs"


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_start_is_explained(folder: Path, name: str) -> None:
    ended = json.loads((folder / f"{name}.json").read_text())
    explained = read(str(folder / f"{name}.log")).explain(ended["code"], ended["signal"])
    assert explained.error is not None
    expected = CAUSES[name]
    if name == "killed-engine" and "Failed core proc(s): {}" in explained.error.line:
        expected = Cause(
            "process_died", "weights", "left no reason", line="{}"
        )  # vLLM looked before the exit code came
    assert explained.error.klass == expected.klass
    assert expected.cause in explained.error.cause
    assert expected.line in explained.error.line
