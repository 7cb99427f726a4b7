"""The data stages with real vLLM on the CPU and real speculators: killed on the way, resumed, nothing done twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fixtures.stage_jobs import Jobs, living, rows
from fixtures.stages import Workspace, prompts

from pipeline import states
from pipeline.plan.safetensors import read_header
from pipeline.states import Shape
from remote import procfs
from remote.protocol import jobs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PIPELINE = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
PYTHON, VERIFIER = PIPELINE / "ml" / "bin" / "python", PIPELINE / "SmolLM2-135M-Instruct"
FIXTURES = ROOT / "tests" / "fixtures"
COUNT = 40
SHAPE = Shape(layers=4, width=576)
SYNTHESIZE: dict[str, Any] = {"max_tokens": 48, "temperature": 0, "concurrency": 8, "max_truncated": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    if not PYTHON.exists() or not VERIFIER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment in {PIPELINE}")
    root = tmp_path_factory.mktemp("data")
    source = root / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in prompts()))
    found = Jobs(root, VERIFIER, PYTHON)
    evidence = found.finish("prompts", source=str(source), samples=COUNT, held_out=8)
    assert (evidence["prompts"], evidence["held out"]) == (COUNT, 8)
    return found


def test_synthesis_killed_and_without_its_server_goes_on_and_asks_nothing_twice(data: Jobs) -> None:
    responses = data.run.responses
    job = data.launch("synthesize", **SYNTHESIZE)
    data.until(job, lambda job: len(rows(responses)) >= 8)
    before = data.processes(job)
    assert any("VLLM::EngineCore" in (procfs.command_line(record.pid) or "") for record in before)
    data.kill(job, "pipeline.stages synthesize")
    assert data.ended(job).state == jobs.FAILED
    assert living(before) == [], "the server of a killed stage is ended with it"

    first = rows(responses)
    with open(responses, "a") as file:
        file.write('{"id": "half a li')
    job = data.launch("synthesize", **SYNTHESIZE)
    data.until(job, lambda job: len(responses.read_text().splitlines()) >= len(first) + 6)
    data.kill(job, "VLLM::EngineCore")
    ended = data.ended(job)
    assert ended.state == jobs.FAILED and ended.failure is not None, ended
    second = rows(responses)
    assert second[: len(first)] == first, "what was finished is kept as it was"

    evidence = data.finish("synthesize", **SYNTHESIZE)
    assert (
        evidence["kept from before"] >= len(second) and evidence["kept from before"] + evidence["answered now"] == COUNT
    )
    final = rows(responses)
    assert len({row["id"] for row in final}) == len(final) == COUNT
    assert final[: len(second)] == second
    assert data.finish("synthesize", **SYNTHESIZE)["answered now"] == evidence["answered now"], "skipped: same evidence"


def test_preparing_drops_or_keeps_what_was_cut(data: Jobs) -> None:
    cut = sum(row["metadata"]["finish_reason"] == "length" for row in rows(data.run.responses))
    assert 0 < cut < COUNT, "there is something to drop and something to keep"
    evidence = data.finish("prepare", seq_length=512)
    assert (evidence["rows"], evidence["dropped as truncated"]) == (COUNT - cut, cut)
    evidence = data.finish("prepare", seq_length=512, truncated="keep")
    assert (evidence["rows"], evidence["dropped as truncated"]) == (COUNT, 0)
    assert evidence["token frequencies"] == evidence["tokens to learn"]
    aside = [path.name for path in data.run.data.iterdir() if path.name.startswith("stale_")]
    assert len(aside) == 1 and aside[0].endswith("_prepared"), "the first data set is set aside, not deleted"


def test_extraction_killed_goes_on_and_torn_files_do_not_count(data: Jobs) -> None:
    folder = data.run.hidden_states

    def files() -> list[Path]:
        return sorted(folder.glob("hs_*.safetensors"))

    job = data.launch("extract", concurrency=2)
    data.until(job, lambda job: len(files()) >= 6)
    data.kill(job, "pipeline.stages extract")
    assert data.ended(job).state == jobs.FAILED
    whole = files()
    assert len(whole) < COUNT, "it was killed on the way"
    stamps = {path: path.stat().st_mtime_ns for path in whole[1:]}
    torn = whole[0]
    torn.write_bytes(torn.read_bytes()[:-1])
    torn.with_name(torn.name + ".lock").touch()

    evidence = data.finish("extract", concurrency=8)
    assert evidence["whole files"] == COUNT
    assert evidence["kept from before"] + evidence["extracted now"] == COUNT
    assert evidence["kept from before"] <= len(whole) - 1 and evidence["kept from before"] >= len(whole) - 3
    assert evidence["layers"] == "2, 15, 27, 30"
    same = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert len(same) == evidence["kept from before"], "what was whole is not computed again"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"hs_{row}.safetensors" for row in range(COUNT))
    assert not (data.run.data / ".storage").exists()
    for path in files():
        length = read_header(str(path)).shapes[states.TOKENS][0]
        assert states.problem(path, length, SHAPE) == ""


def test_the_drafts_vocabulary(data: Jobs) -> None:
    evidence = data.finish("vocab", draft_vocab_size=4096)
    assert evidence["draft vocabulary"] == 4096 and evidence["token coverage"] == 1.0
    job = data.launch("vocab", draft_vocab_size=64)
    with pytest.raises(AssertionError, match="cover"):
        data.until(job, lambda job: False)


def test_one_pass_gives_the_same_answers_and_the_states_of_the_verifiers_own_forward(
    data: Jobs, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path, str(PYTHON), verifier=str(VERIFIER))
    workspace.run_of().data.mkdir()
    chosen = rows(data.run.prompts)[:12]
    workspace.run_of().prompts.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    run = workspace.run("synthesize", states=True, **SYNTHESIZE)
    assert run.code == 0, run.output
    assert run.evidence["states captured"] == 12 and "tokens are prefilled in one step" in run.messages
    classic = {row["primary_id"]: row["input_ids"] for row in rows(data.run.responses)}
    found = {row["primary_id"]: row["input_ids"] for row in rows(workspace.run_of().responses)}
    assert sum(tokens == classic[key][:-1] for key, tokens in found.items()) >= 11
    assert workspace.run("prepare", seq_length=512, truncated="keep").code == 0
    run = workspace.run("extract")
    assert run.code == 0, run.output
    assert (run.evidence["taken from the answers"], run.evidence["extracted now"]) == (12, 0)
    assert not any(event for event in run.events if getattr(event, "name", "").startswith("server")), (
        "no server is needed"
    )
    assert difference(VERIFIER, workspace.run_of().hidden_states) < 0.001


def test_conversations_are_rendered_by_a_server_without_weights(data: Jobs, tmp_path: Path) -> None:
    verifier = tmp_path / "verifier"
    verifier.mkdir()
    for path in VERIFIER.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, verifier)
    workspace = Workspace(tmp_path, str(PYTHON), verifier=str(verifier))
    run = workspace.run_of()
    run.data.mkdir()
    turns = [
        [{"from": "human", "value": f"What is {n} + {n}?"}, {"from": "gpt", "value": f"{2 * n}."}] for n in range(6)
    ]
    run.responses.write_text("".join(json.dumps({"conversations": conversation}) + "\n" for conversation in turns))
    ended = workspace.run("prepare", seq_length=256)
    assert ended.code == 0, ended.output
    assert ended.evidence["rows"] == 6 and 6 <= ended.evidence["tokens to learn"] < ended.evidence["tokens"] / 2
    assert any(getattr(event, "name", "") == "server render" for event in ended.events)


def difference(verifier: Path, folder: Path, layers: str = "2,15,27,30") -> float:
    """The largest relative difference of saved states to transformers' own forward."""
    found = subprocess.run(
        [PYTHON, FIXTURES / "forward_states.py", verifier, folder, layers], capture_output=True, text=True, check=True
    )
    return float(found.stdout.split()[-1])
