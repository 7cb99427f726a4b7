"""Runs and artifacts recognised from their files."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest
from fixtures import training_runs as made

from remote.disk import artifacts, settings
from remote.disk.artifacts import recognise
from remote.disk.completeness import Probes, files
from remote.disk.runs import Run, Runs
from remote.protocol.artifacts import Checkpoint


def read(folder: Path) -> Run:
    run = Runs().read(str(folder))
    assert run is not None
    return run


def by_name(run: Run) -> dict[str, Checkpoint]:
    return {item.name: item for item in run.checkpoints}


def test_a_recorded_run(tmp_path: Path) -> None:
    run = read(made.recorded_run(tmp_path))
    assert [item.name for item in run.checkpoints] == ["3", "2", "1", "0"]
    assert all(
        (item.state, item.resumable, item.servable, item.holes) == ("full", True, True, 0) for item in run.checkpoints
    )
    assert [item.step for item in run.checkpoints] == [72, 54, 36, 18]
    found = by_name(run)
    assert found["3"].best and found["3"].newest and run.best_source.endswith("checkpoint_best")
    assert found["3"].validation_loss == pytest.approx(0.6358, abs=1e-4)
    assert [item.predicted_acceptance for item in run.checkpoints] == [
        pytest.approx(value, abs=5e-3) for value in (3.42, 3.29, 3.54, 2.26)
    ]
    assert "3.54 is the highest" in found["1"].possibly_best, "loss and acceptance disagree: both are kept"
    assert run.finished and run.epochs == 4
    assert run.settings.get("data_path") == f"{tmp_path}/data_1k/prepared"
    assert run.settings.get("verifier_name_or_path") == f"{tmp_path}/verifier"
    assert found["0"].artifact.verdict.reclaim is not None
    assert set(found["0"].artifact.verdict.reclaim) == {"whole", "trim"}


def test_without_metrics_the_record_of_our_trainer_still_says_what_is_best(tmp_path: Path) -> None:
    folder = made.recorded_run(tmp_path)
    (folder / "checkpoint_best").unlink()
    for epoch in range(4):
        (folder / str(epoch) / "val_metrics.json").unlink()
    run = read(folder)
    assert run.best.endswith("/1") and run.best_source.endswith("metrics.jsonl")
    assert by_name(run)["3"].validation_loss == pytest.approx(0.6358, abs=1e-4)


def test_records_that_grow_are_read_on(tmp_path: Path) -> None:
    folder = made.recorded_run(tmp_path)
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"")
    for epoch in range(4):
        (folder / str(epoch) / "val_metrics.json").unlink()
    runs = Runs()
    for line in lines:
        with open(folder / "metrics.jsonl", "ab") as file:
            file.write(line[:10])
        assert runs.read(str(folder)) is not None, "a line that is cut is no record yet"
        with open(folder / "metrics.jsonl", "ab") as file:
            file.write(line[10:])
    run = runs.read(str(folder))
    assert run and all(item.predicted_acceptance for item in run.checkpoints)


@pytest.mark.parametrize(
    ("harm", "state", "resumable", "servable", "problem"),
    [
        (lambda folder: made.cut(folder / "model.safetensors"), "torn", False, False, "model.safetensors is cut"),
        (lambda folder: (folder / "model.safetensors").unlink(), "torn", False, False, "is missing"),
        (lambda folder: (folder / "config.json").write_text("{"), "torn", False, False, "config.json cannot be read"),
        (
            lambda folder: made.cut(folder / "optimizer_state_dict.pt"),
            "torn",
            False,
            True,
            "optimizer_state_dict.pt is cut",
        ),
        (
            lambda folder: made.cut(folder / "scheduler_state_dict.pt"),
            "torn",
            False,
            True,
            "scheduler_state_dict.pt is cut",
        ),
        (lambda folder: (folder / "optimizer_state_dict.pt").unlink(), "trimmed", False, True, ""),
        (lambda folder: (folder / "training_state.json").write_text("{"), "full", False, True, ""),
        (lambda folder: (folder / "training_state.json").unlink(), "full", True, True, ""),
        (lambda folder: (folder / "scheduler_state_dict.pt").unlink(), "full", True, True, ""),
    ],
)
def test_states(tmp_path, harm, state: str, resumable: bool, servable: bool, problem: str) -> None:  # type: ignore[no-untyped-def]
    folder = made.run(tmp_path / "run", [1.0], best=0)
    harm(folder / "0")
    made.age(folder / "0", made.LONG_AGO)
    item = by_name(read(folder))["0"]
    assert (item.state, item.resumable, item.servable) == (state, resumable, servable)
    assert problem in item.problem and bool(problem) is bool(item.problem)


def test_speculators_739_an_integer_folder_is_no_proof(tmp_path: Path) -> None:
    """Any folder with a number was trusted at resume; here an empty one is torn, and what is being written is that."""
    folder = made.run(tmp_path / "run", [1.0, 0.9], best=1)
    (folder / "2").mkdir()
    (folder / "3").mkdir()
    (folder / "3" / "model.safetensors").write_bytes(b"\x10")
    found = by_name(read(folder))
    assert (found["2"].state, found["3"].state) == ("torn", "writing")
    assert found["1"].newest


def test_other_folders_of_a_run_are_no_checkpoints(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "run", [1.0], best=0)
    made.checkpoint(folder / "interrupted", None)
    made.checkpoint(folder / "superseded_epoch1", 1)
    (folder / "torn_interrupted_2").mkdir()
    (folder / "notes").mkdir()
    found = by_name(read(folder))
    assert set(found) == {"0", "interrupted", "superseded_epoch1", "torn_interrupted_2"}
    assert (found["interrupted"].state, found["interrupted"].resumable) == ("interrupted", True)
    assert not found["superseded_epoch1"].resumable, "the trainer passes it over"


def test_the_newest_that_was_not_validated_may_be_the_best(tmp_path: Path) -> None:
    found = by_name(read(made.run(tmp_path / "run", [1.0, 0.9, None], best=1)))
    assert "validation" in found["2"].possibly_best and not found["2"].best


def test_a_dangling_best_is_a_finding_and_nothing_is_best(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "run", [1.0, 0.9], best=0)
    shutil.rmtree(folder / "0")
    run = read(folder)
    assert not run.best and "points to 0, which is not there" in run.best_problem


def test_holes_are_counted(tmp_path: Path) -> None:
    folder = made.checkpoint(tmp_path / "run" / "0", 0, weight_bytes=100_000_000)
    item = by_name(read(folder.parent))["0"]
    assert item.servable and 99_000_000 < item.holes <= 100_000_000


def test_folders_with_numbers_are_no_run_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "2024" / "05").mkdir(parents=True)
    (tmp_path / "2024" / "05" / "photo.jpg").touch()
    assert Runs().read(str(tmp_path)) is None and Runs().read(str(tmp_path / "2024")) is None
    made.run(tmp_path / "run", [1.0], best=0)
    (tmp_path / "run" / "7").mkdir()
    (tmp_path / "run" / "7" / "notes.txt").touch()
    assert set(by_name(read(tmp_path / "run"))) == {"0"}
    (tmp_path / "run" / "7" / "config.json").write_text("{}")
    made.age(tmp_path / "run" / "7", made.LONG_AGO)
    assert (by_name(read(tmp_path / "run"))["7"].state, by_name(read(tmp_path / "run"))["7"].strangers) == ("torn", 1)


class TestHuggingFace:
    def test_steps_and_best(self, tmp_path: Path) -> None:
        folder = tmp_path / "out"
        run = read(made.hugging_face(folder, [100, 200, 300], str(folder / "checkpoint-200"), {100: 2.0, 200: 1.5}))
        assert [item.step for item in run.checkpoints] == [300, 200, 100]
        found = by_name(run)
        assert found["checkpoint-200"].best and found["checkpoint-300"].newest
        assert found["checkpoint-200"].validation_loss == 1.5
        assert all(item.resumable for item in run.checkpoints)

    def test_transformers_48319_a_best_that_was_moved_is_resolved_by_its_inode(self, tmp_path: Path) -> None:
        made.hugging_face(tmp_path / "moved", [100, 200, 300], str(tmp_path / "old" / "checkpoint-100"))
        (tmp_path / "old").symlink_to("moved")
        assert by_name(read(tmp_path / "moved"))["checkpoint-100"].best

    def test_transformers_48319_one_that_is_gone_is_said_and_its_name_is_kept(self, tmp_path: Path) -> None:
        run = read(made.hugging_face(tmp_path / "out", [100, 200, 300], "/elsewhere/checkpoint-100"))
        assert by_name(run)["checkpoint-100"].best and "is not there" in run.best_problem
        gone = read(made.hugging_face(tmp_path / "other", [200, 300], "/elsewhere/checkpoint-100"))
        assert not gone.best and "not known" in gone.best_problem

    def test_shards(self, tmp_path: Path) -> None:
        folder = made.hugging_face(tmp_path / "out", [100], None) / "checkpoint-100"
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        made.age(folder, made.LONG_AGO)
        assert by_name(read(tmp_path / "out"))["checkpoint-100"].problem == "1 of 2 shards are missing"
        made.weights(folder / "model-2.safetensors")
        assert by_name(read(tmp_path / "out"))["checkpoint-100"].servable


def test_a_fifo_and_a_link_in_the_place_of_weights_are_not_opened(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "run", [1.0], best=0)
    (folder / "0" / "model.safetensors").unlink()
    os.mkfifo(folder / "0" / "model.safetensors")
    (folder / "0" / "config.json").unlink()
    (folder / "0" / "config.json").symlink_to("/dev/zero")
    assert not by_name(read(folder))["0"].servable


def test_a_file_is_looked_at_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.weights(tmp_path / "model.safetensors")
    probes = Probes()
    look = lambda: probes.weights(str(tmp_path), files(str(tmp_path))["model.safetensors"], "model.safetensors")  # noqa: E731
    assert look().whole
    monkeypatch.setattr("remote.disk.completeness._look", lambda *_: pytest.fail("looked again"))
    assert look().whole
    monkeypatch.undo()
    made.cut(tmp_path / "model.safetensors")
    assert not look().whole


def test_settings_of_a_run() -> None:
    text = "a:\n  data_path: '/d/it''s'\n  layers:\n  - 2\n  - 5\n  empty: null\n# c: 1\n  epochs: 4\n"
    found = settings.Settings(tuple(settings.from_yaml(text, "run.yaml")))
    assert found.get("data_path") == "/d/it's" and found.whole("epochs") == 4 and found.get("empty") is None
    assert [item.value for item in found.items if item.name == "layers"] == ["2", "5"]
    command = list(settings.from_command("# when\ntrain.py --data-path '/a b' --lr=0.1 x\n", "train_command.txt"))
    assert [(item.name, item.value) for item in command] == [
        ("argument", "train.py"), ("data_path", "/a b"), ("lr", "0.1"), ("argument", "x"),
    ]  # fmt: skip
    assert not list(settings.from_command("it's broken", "x"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One of each kind."""
    made.recorded_run(tmp_path, "output_1k")
    made.hugging_face(tmp_path / "trainer", [100], None)
    made.data(tmp_path / "data_plain", 3)
    (tmp_path / "data_plain" / "hidden_states" / "hs_0.safetensors.lock").touch()
    made.data(tmp_path / "data_ours" / "prepared", 2)
    (tmp_path / "data_ours" / "prompts.jsonl").write_text('{"id": "0", "conversations": []}\n')
    (tmp_path / "data_ours" / "responses.jsonl").write_text('{"id": "0", "conversations": []}\n')
    made.checkpoint(tmp_path / "draft_1k")
    shutil.rmtree(tmp_path / "draft_1k" / "x", ignore_errors=True)
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    made.weights(tmp_path / "verifier" / "model.safetensors")
    (tmp_path / "nested" / "deep").mkdir(parents=True)
    made.run(tmp_path / "nested" / "deep" / "output_x", [1.0], best=0)
    (tmp_path / "tracker").mkdir()
    (tmp_path / "tracker" / "events.out.tfevents.1.host").touch()
    (tmp_path / "wandb" / "offline-run-1-a").mkdir(parents=True)
    (tmp_path / "hub" / "models--a--b" / "blobs").mkdir(parents=True)
    (tmp_path / "torch_compile_cache" / "abc").mkdir(parents=True)
    (tmp_path / "core.4711").write_bytes(b"\x7fELF" + b"\0" * 100)
    (tmp_path / "core.md").write_text("notes")
    (tmp_path / "train.log").touch()
    (tmp_path / "mystery").mkdir()
    (tmp_path / "mystery" / "3").mkdir()
    (tmp_path / "mystery" / "3" / "notes.txt").touch()
    (tmp_path / "photo.jpg").touch()
    (tmp_path / ".eagle_trash").mkdir()
    (tmp_path / ".eagle_console").mkdir()
    (tmp_path / "link").symlink_to("output_1k")
    return tmp_path


def test_artifacts_are_recognised(workspace: Path) -> None:
    found = {os.path.relpath(item.path, workspace): item for item in recognise(str(workspace), Runs())}
    kinds = {name: item.kind for name, item in found.items() if not item.parent}
    assert kinds == {
        "output_1k": artifacts.RUN,
        "trainer": artifacts.RUN,
        "data_plain": artifacts.PREPARED,
        "data_ours": artifacts.DATA,
        "draft_1k": artifacts.DRAFT,
        "verifier": artifacts.VERIFIER,
        "nested": artifacts.FOLDER,
        "nested/deep": artifacts.FOLDER,
        "nested/deep/output_x": artifacts.RUN,
        "tracker": artifacts.LOG,
        "wandb": artifacts.LOG,
        "hub": artifacts.HUB_CACHE,
        "torch_compile_cache": artifacts.COMPILE_CACHE,
        "core.4711": artifacts.CORE_DUMP,
        "core.md": artifacts.UNKNOWN,
        "train.log": artifacts.LOG,
        "mystery": artifacts.UNKNOWN,
        "photo.jpg": artifacts.UNKNOWN,
        ".eagle_trash": artifacts.OWN,
        ".eagle_console": artifacts.OWN,
    }
    parts = {name: item.kind for name, item in found.items() if item.parent and item.kind != artifacts.CHECKPOINT}
    assert parts == {
        "data_plain/hidden_states": artifacts.HIDDEN_STATES,
        "data_ours/prepared": artifacts.PREPARED,
        "data_ours/prepared/hidden_states": artifacts.HIDDEN_STATES,
        "data_ours/prompts.jsonl": artifacts.PROMPTS,
        "data_ours/responses.jsonl": artifacts.RESPONSES,
    }
    assert (found["data_plain/hidden_states"].samples, found["data_plain/hidden_states"].locks) == (3, 1)
    assert found["wandb"].detail == "1 wandb runs are not synced"
    assert not found[".eagle_trash"].movable and not found[".eagle_console"].movable


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "core.1")
    os.mkfifo(tmp_path / "a.jsonl")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        os.mkdir(os.fsencode(tmp_path) + b"/bad-\xff\nline")
        started = time.monotonic()
        found = recognise(str(tmp_path), Runs())
    assert {item.kind for item in found} == {artifacts.UNKNOWN} and len(found) == 4
    assert time.monotonic() - started < 5, "nothing waited for the pipes"
