"""A verifier with latent attention (MLA), as Kimi-K2.5 has it: its states from answers and from extraction."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.stages import ROOT, Workspace, prompts

pytestmark = pytest.mark.slow

PIPELINE = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
PYTHON, TOKENIZER = PIPELINE / "ml" / "bin" / "python", PIPELINE / "SmolLM2-135M-Instruct"
FIXTURES = ROOT / "tests" / "fixtures"
COUNT = 8
LAYERS = "2,4,5,8"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """DeepSeek-V3's shape with 8 layers of width 64 and seeded weights, and prompts for it."""
    if not PYTHON.exists() or not TOKENIZER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment in {PIPELINE}")
    verifier = tmp_path / "verifier"
    subprocess.run(
        [PYTHON, FIXTURES / "seeded_verifier.py", "deepseek", verifier, TOKENIZER], check=True, capture_output=True
    )
    made = Workspace(tmp_path, str(PYTHON), verifier=str(verifier))
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in prompts()))
    drawn = made.run("prompts", source=str(source), samples=COUNT, held_out=1)
    assert drawn.code == 0, drawn.output
    return made


def difference(workspace: Workspace) -> float:
    """The largest relative difference of the run's states to transformers' own forward."""
    found = subprocess.run(
        [PYTHON, FIXTURES / "forward_states.py", workspace.root / "verifier", workspace.run_of().hidden_states, LAYERS],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(found.stdout.split()[-1])


def test_states_of_a_verifier_with_latent_attention(workspace: Workspace) -> None:
    run = workspace.run_of()
    answered = workspace.run(
        "synthesize", states=True, max_tokens=16, temperature=0, concurrency=4, max_truncated=1, max_repetitive=1
    )
    assert answered.code == 0, answered.output
    assert answered.evidence["states captured"] == COUNT
    assert workspace.run("prepare", seq_length=256, truncated="keep").code == 0
    taken = workspace.run("extract")
    assert taken.code == 0, taken.output
    assert (taken.evidence["taken from the answers"], taken.evidence["extracted now"]) == (COUNT, 0)
    assert taken.evidence["layers"] == LAYERS.replace(",", ", ")
    one_pass = difference(workspace)

    shutil.rmtree(run.captured)
    shutil.rmtree(run.hidden_states)
    extracted = workspace.run("extract", concurrency=4)
    assert extracted.code == 0, extracted.output
    assert (extracted.evidence["taken from the answers"], extracted.evidence["extracted now"]) == (0, COUNT)
    extraction = difference(workspace)
    sys.stdout.write(f"largest relative difference: one pass {one_pass:.1e}, extraction {extraction:.1e}\n")
    assert one_pass < 0.001 and extraction < 0.001
