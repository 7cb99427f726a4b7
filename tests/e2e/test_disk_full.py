"""A real file system that fills up half way: the stage stops and says so, and goes on after room is made."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.small_disk import SmallDisk, small_disk
from fixtures.stages import ROOT, Finished, Workspace, finished, prompts, wait_for

from pipeline.training import checkpoints, records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PIPELINE = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
PYTHON, TOKENIZER = PIPELINE / "ml" / "bin" / "python", PIPELINE / "SmolLM2-135M-Instruct"
FIXTURES = ROOT / "tests" / "fixtures"
MB = 1024**2
ROWS, LENGTH = 500, 100
EPOCHS = 30


@pytest.fixture(autouse=True)
def environment() -> None:
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment at {PYTHON}")


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[SmallDisk]:
    """Twice the room that stages keep free for others."""
    with small_disk(tmp_path / "disk", 560 * MB) as disk:
        yield disk


def told(run: Finished) -> bool:
    """It ended because of the disk, and said what to do."""
    assert run.code == 1 and run.failure is not None, run.output
    assert run.failure.klass == "disk_full", run.output
    return run.failure.remedy.startswith("Free ")


def test_data_set_and_states(roomy: SmallDisk, tmp_path: Path) -> None:
    verifier = tmp_path / "verifier"
    subprocess.run([PYTHON, FIXTURES / "seeded_verifier.py", "llama", verifier, TOKENIZER], check=True)
    workspace = Workspace(roomy.root, str(PYTHON), verifier=str(verifier))
    run = workspace.run_of()
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in prompts()))

    assert workspace.run("prompts", source=str(source), samples=50, held_out=2).code == 0
    rng = random.Random(0)
    row: dict[str, Any] = {"loss_mask": [0] * 4 + [1] * (LENGTH - 4)}
    with open(run.responses, "w") as file:
        for number in range(ROWS):
            row.update(id=str(number), input_ids=[rng.randrange(3, 40000) for _ in range(LENGTH)])
            file.write(json.dumps(row) + "\n")
    roomy.fill(but=700_000)
    assert told(workspace.run("prepare", seq_length=128))
    assert not run.prepared.exists() and not list(run.data.glob(".*")), "nothing half-made stays"
    roomy.empty()
    prepared = workspace.run("prepare", seq_length=128)
    assert prepared.code == 0 and prepared.evidence["rows"] == ROWS, prepared.output

    def files() -> list[Path]:
        return sorted(run.hidden_states.glob("hs_*.safetensors"))

    process, directory = workspace.start("extract", concurrency=1)
    wait_for(lambda: len(files()) >= 20, process, 400)
    roomy.fill()
    process.wait(120)
    assert told(finished(process, directory))
    stamps = {path: path.stat().st_mtime_ns for path in files()}
    assert len(stamps) < ROWS, "it was full half way"
    roomy.empty()
    extracted = workspace.run("extract", concurrency=8)
    assert extracted.code == 0, extracted.output
    assert extracted.evidence["whole files"] == ROWS
    same = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert extracted.evidence["kept from before"] == len(same) >= len(stamps) - 2, "what was whole is kept"


def test_training(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * MB) as disk:
        made = tmp_path / "made"
        subprocess.run([PYTHON, FIXTURES / "tiny_verifier.py", made, "1k"], check=True, capture_output=True)
        shutil.copytree(made, disk.root, dirs_exist_ok=True)
        workspace = Workspace(disk.root, str(PYTHON), verifier=str(disk.root / "verifier"))
        output = workspace.run_of().output
        given = {"loader_workers": 0, "total_seq_len": 64, "lr": 0.01, "epochs": EPOCHS}

        process, directory = workspace.start("train", **given)
        wait_for(lambda: checkpoints.epochs(output) and checkpoints.fault(output / "0") is None, process)
        disk.fill()
        process.wait(120)
        assert told(finished(process, directory))
        first = (output / "0" / checkpoints.MODEL).stat().st_mtime_ns
        disk.empty()
        run = workspace.run("train", **given)
        assert run.code == 0, run.output
        assert run.evidence["epochs"] == EPOCHS
        assert (output / "0" / checkpoints.MODEL).stat().st_mtime_ns == first, "the epoch that was saved is kept"
        done = Counter(
            record["step"]
            for record in records.parse((output / records.FILE).read_bytes().splitlines())
            if record["kind"] == records.TRAIN
        )
        epoch = run.evidence["steps"] // EPOCHS
        assert all(done[step] <= 1 for step in range(epoch)), "and not trained again"
