"""The real trainer on a tiny verifier: finished, interrupted, killed, torn, in two processes; and the export of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fixtures.stages import ROOT, Finished, Workspace, finished, wait_for

from pipeline.plan import events
from pipeline.plan.safetensors import read_header
from pipeline.training import checkpoints, records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PYTHON = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline")) / "ml" / "bin" / "python"

QUICK: dict[str, Any] = {"loader_workers": 0, "total_seq_len": 64, "lr": 0.01}
"""18 steps an epoch, loaded by the trainer's own process."""

EPOCH = 18


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a verifier and a prepared run, to be copied."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment at {PYTHON}")
    root = tmp_path_factory.mktemp("prepared")
    script = Path(__file__).parents[1] / "fixtures" / "tiny_verifier.py"
    subprocess.run([PYTHON, script, root, "1k"], check=True, capture_output=True)
    return root


@pytest.fixture
def workspace(prepared: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Workspace(tmp_path, str(PYTHON), verifier=str(tmp_path / "verifier"))


def recorded(workspace: Workspace) -> list[dict[str, Any]]:
    path = workspace.run_of().output / records.FILE
    return list(records.parse(path.read_bytes().splitlines())) if path.exists() else []


def steps(workspace: Workspace) -> list[int]:
    """The number of every training step that was done, in order."""
    return [record["step"] for record in recorded(workspace) if record["kind"] == records.TRAIN]


def phases(run: Finished) -> list[str]:
    return [event.name for event in run.events if isinstance(event, events.Phase)]


def states(workspace: Workspace) -> dict[int, checkpoints.TrainingState]:
    output = workspace.run_of().output
    return {epoch: checkpoints.read_state(output / str(epoch)) for epoch in checkpoints.epochs(output)}


def test_training_is_watched_proven_exported_and_not_done_twice(workspace: Workspace) -> None:
    run = workspace.run("train", epochs=3, **QUICK)
    assert run.code == 0, run.output
    assert (run.evidence["epochs"], run.evidence["steps"]) == (3, 3 * EPOCH)
    assert run.evidence["predicted_acceptance"] > 2.5, "the successor of a token was not learnt"
    assert phases(run)[:6] == ["inputs", "import", "build", "move", "workers", "first step"]
    assert phases(run)[6:] == ["train", "save", "validate"] * 3 + ["proof"]
    counts = [event for event in run.events if isinstance(event, events.Count)]
    assert (counts[-1].done, counts[-1].total, counts[-1].unit) == (3 * EPOCH, 3 * EPOCH, "steps")
    figures: dict[str, Any] = {}
    for event in run.events:
        if isinstance(event, events.Metrics):
            figures.update(event.values)
    assert {"loss", "full_acc_0", "cond_acc_2", "learning_rate", "waiting_for_data", "steps_per_second"} <= set(figures)
    assert (figures["epoch"], figures["epochs"], figures["epoch_steps"]) == (3, 3, EPOCH)
    assert "optimizer=adamw: " in run.messages and "lr=0.01: as given" in run.messages
    output = workspace.run_of().output
    saved = [event for event in run.events if isinstance(event, events.EpochSaved)]
    assert [(event.path, event.epoch, event.step) for event in saved] == [
        (str(output / str(epoch)), epoch, (epoch + 1) * EPOCH) for epoch in range(3)
    ]
    assert max(event.predicted_acceptance or 0.0 for event in saved) == pytest.approx(
        run.evidence["predicted_acceptance"], abs=1e-4
    )
    assert all(event.bytes > 0 and event.validation_loss for event in saved)
    header = read_header(str(output / "2" / "model.safetensors"))
    assert "embed_tokens.weight" not in header.tensors, "the frozen embedding is the verifier's"

    before = len(recorded(workspace))
    again = workspace.run("train", epochs=3, **QUICK)
    assert again.code == 0 and "is up to date" in again.messages
    assert again.evidence == run.evidence
    assert len(recorded(workspace)) == before

    exports(workspace, run.evidence["best_epoch"])


def exports(workspace: Workspace, best: int) -> None:
    """Both forms of an export of the finished run."""
    slim = workspace.run("export")
    assert slim.code == 0, slim.output
    assert slim.evidence["epoch"] == best
    assert slim.evidence["layer_ids"] == "2,4,5"
    draft = workspace.run_of().draft
    config = json.loads((draft / "config.json").read_text())
    assert (config["vocab_size"], config["draft_vocab_size"]) == (128, 96)
    names = set(read_header(str(draft / "model.safetensors")).tensors)
    assert "midlayer.self_attn.q_proj.weight" in names and "embed_tokens.weight" not in names
    assert sorted(path.name for path in draft.iterdir()) == ["config.json", "model.safetensors"]

    full = workspace.run("export", form="full")
    assert full.code == 0, full.output
    kept = list(draft.parent.glob("draft_1k_before_*"))
    assert len(kept) == 1 and kept[0].name in full.messages
    assert read_header(str(draft / "model.safetensors")).shapes["embed_tokens.weight"] == (128, 32)

    assert "is up to date" in workspace.run("export", form="full").messages
    wrong = workspace.run("export", checkpoint="7")
    assert wrong.code == 1 and wrong.failure is not None and "There are: 0, 1, 2" in wrong.failure.remedy


def test_a_stop_saves_and_the_next_start_continues_after_the_last_step(workspace: Workspace) -> None:
    process, directory = workspace.start("train", epochs=4, **QUICK)
    wait_for(lambda: len(steps(workspace)) > EPOCH + 5, process)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    stopped = finished(process, directory)
    assert stopped.code == 143, stopped.output
    assert "The interrupted epoch is saved" in stopped.messages
    place = checkpoints.read_state(workspace.run_of().output / "interrupted")
    assert place.global_step == place.epoch * EPOCH + place.local_step > EPOCH

    run = workspace.run("train", epochs=4, **QUICK)
    assert run.code == 0, run.output
    assert f"Training continues in epoch {place.epoch + 1} after its step {place.local_step}" in run.messages
    assert run.evidence["steps"] == 4 * EPOCH
    done = Counter(steps(workspace))
    assert set(done) == set(range(4 * EPOCH))
    assert sum(done.values()) <= 4 * EPOCH + 1, "more than the step in hand was repeated"
    assert not (workspace.run_of().output / "interrupted").exists()


def test_a_killed_stage_does_not_lose_its_trainers_work(workspace: Workspace) -> None:
    process, _ = workspace.start("train", epochs=4, **QUICK)
    wait_for(lambda: len(steps(workspace)) > EPOCH + 2, process)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    run = workspace.run("train", epochs=4, **QUICK)
    assert run.code == 0, run.output
    assert "Training continues in epoch" in run.messages
    assert run.evidence["steps"] == 4 * EPOCH
    assert sum(Counter(steps(workspace)).values()) <= 4 * EPOCH + 1


def test_torn_checkpoints_are_passed_over_and_more_epochs_continue(workspace: Workspace) -> None:
    assert workspace.run("train", epochs=2, **QUICK).code == 0
    model = workspace.run_of().output / "1" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])
    run = workspace.run("train", epochs=3, **QUICK)
    assert run.code == 0, run.output
    assert "The checkpoint of epoch 2 is torn (model.safetensors is cut" in run.messages
    assert states(workspace) == {epoch: checkpoints.TrainingState(epoch, 0, (epoch + 1) * EPOCH) for epoch in range(3)}
    assert (workspace.run_of().output / "torn_epoch1").is_dir()


def test_two_processes_train_and_stop_together(workspace: Workspace) -> None:
    process, directory = workspace.start("train", epochs=3, processes=2, **QUICK)
    wait_for(lambda: len(steps(workspace)) > EPOCH // 2 + 2, process)
    process.send_signal(signal.SIGTERM)
    process.wait(90)
    stopped = finished(process, directory)
    assert stopped.code == 143, stopped.output
    run = workspace.run("train", epochs=3, processes=2, **QUICK)
    assert run.code == 0, run.output
    assert "Training continues in epoch" in run.messages
    assert run.evidence["steps"] == 3 * EPOCH // 2
    assert set(steps(workspace)) == set(range(3 * EPOCH // 2))


def test_other_settings_and_foreign_checkpoints_do_not_mix(workspace: Workspace) -> None:
    assert workspace.run("train", epochs=1, **QUICK).code == 0
    run = workspace.run("train", epochs=1, **{**QUICK, "lr": 0.02})
    assert run.code == 0, run.output
    assert "lr was 0.01 and is 0.02" in run.messages
    aside = [path for path in workspace.root.iterdir() if path.name.startswith("stale_")]
    assert len(aside) == 1 and (aside[0] / "0" / "model.safetensors").exists()

    foreign = workspace.run_of("theirs").output
    shutil.copytree(workspace.run_of().output / "0", foreign / "0")
    shutil.copytree(workspace.run_of().data, workspace.run_of("theirs").data)
    refused = workspace.run("train", run="theirs", epochs=1, **QUICK)
    assert refused.code == 1 and refused.failure is not None
    assert "does not say how they were made" in refused.failure.cause and "run=NAME" in refused.failure.remedy


def test_what_speculators_itself_left_interrupted_is_continued_within_its_epoch(workspace: Workspace) -> None:
    run = workspace.run_of()
    script = Path(__file__).parents[1] / "fixtures" / "plain_trainer.py"
    words = ["--verifier-name-or-path", workspace.root / "verifier", "--data-path", run.prepared]
    words += ["--save-path", run.output, "--draft-vocab-size", "96", "--epochs", "4", "--total-seq-len", "64"]
    words += ["--lr", "0.01", "--optimizer", "adamw", "--num-workers", "0", "--draft-attn-impl", "sdpa"]
    words += ["--loss-implementation", "eager", "--hidden-states-dtype", "float32", "--on-missing", "raise"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    plain = subprocess.run(
        [PYTHON, script, str(EPOCH + 7), *words, "--mask-token-id", "0"], env=variables, capture_output=True, text=True
    )
    assert plain.returncode == 0, plain.stderr
    assert sorted(path.name for path in (run.output / "interrupted").glob("*.json")) == ["config.json"]

    other = workspace.run("train", epochs=4, **{**QUICK, "lr": 0.02})
    assert other.code == 1 and other.failure is not None and "lr was 0.01 and is 0.02" in other.failure.cause
    mine = workspace.run("train", epochs=4, **QUICK)
    assert mine.code == 0, mine.output
    assert f"Training continues in epoch 2 after its step 7 (step {EPOCH + 7})." in mine.messages
    assert steps(workspace) == list(range(EPOCH + 7, 4 * EPOCH)), "only what was missing was trained"
    assert mine.evidence["steps"] == 4 * EPOCH
    assert states(workspace) == {epoch: checkpoints.TrainingState(epoch, 0, (epoch + 1) * EPOCH) for epoch in range(4)}


def test_bad_input_is_named_before_anything_starts(workspace: Workspace) -> None:
    def refusal(**parameters: Any) -> events.Failed:
        run = workspace.run("train", **{**QUICK, **parameters})
        assert run.code == 1 and run.failure is not None, run.output
        assert not checkpoints.epochs(workspace.run_of().output)
        return run.failure

    assert "vocab" in refusal(draft_vocab_size=64).remedy
    assert "more than the verifier's 128" in refusal(draft_vocab_size=4096).cause
    assert "divisor of 4" in refusal(epochs=4, checkpoint_every=3).cause
    assert "--save-best is refused" in refusal(trainer_options="--save-best").cause
    assert "states of 32 are needed" in refusal(layer_ids="1,2,3,4").cause
    broken = workspace.run_of().hidden_states / "hs_7.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    lacking = refusal()
    assert "1 of 40" in lacking.cause and "hs_7.safetensors" in lacking.cause and "extract" in lacking.remedy
