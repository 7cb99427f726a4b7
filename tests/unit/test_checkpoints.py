from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from pipeline.training import checkpoints
from pipeline.training.checkpoints import TrainingState


def checkpoint(save_path: Path, name: str, state: TrainingState | None) -> Path:
    """A folder as the trainer leaves it."""
    folder = save_path / name
    folder.mkdir(parents=True)
    raw = json.dumps({"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"1234")
    (folder / "config.json").write_text("{}")
    for name in ("optimizer_state_dict.pt", "scheduler_state_dict.pt"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("data", "1" * 100)
    if state is not None:
        checkpoints.write_state(folder, state)
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def names(save_path: Path) -> list[str]:
    return sorted(path.name for path in save_path.iterdir())


def test_a_whole_checkpoint_has_no_fault_and_tells_where_it_stands(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "3", TrainingState(3, 7, 61))
    assert checkpoints.fault(folder) is None
    assert checkpoints.read_state(folder) == TrainingState(3, 7, 61)


def test_links_and_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        checkpoint(tmp_path, str(number), TrainingState(number, 0, 1))
    (tmp_path / "epoch2_end").symlink_to("2")
    (tmp_path / "7").symlink_to("2")
    (tmp_path / "logs").mkdir()
    (tmp_path / "5").write_text("a file")
    assert checkpoints.epochs(tmp_path) == [0, 2, 10]
    assert checkpoints.epochs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.safetensors", "model.safetensors is cut"),
        ("optimizer_state_dict.pt", "optimizer_state_dict.pt is cut"),
        ("scheduler_state_dict.pt", "scheduler_state_dict.pt is cut"),
        ("training_state.json", "JSON"),
        ("config.json", "JSON"),
    ],
)
def test_every_cut_file_is_a_fault(tmp_path: Path, name: str, words: str) -> None:
    folder = checkpoint(tmp_path, "0", TrainingState(0, 0, 9))
    path = folder / name
    path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size // 2)])
    assert words in (checkpoints.fault(folder) or "")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer_state_dict.pt", "training_state.json", "config.json"])
def test_every_missing_file_is_a_fault(tmp_path: Path, name: str) -> None:
    folder = checkpoint(tmp_path, "0", TrainingState(0, 0, 9))
    (folder / name).unlink()
    assert checkpoints.fault(folder) == f"{name} is missing"


def test_what_only_resuming_needs_may_be_gone_from_what_is_not_resumed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "0", None)
    (folder / "optimizer_state_dict.pt").unlink()
    assert checkpoints.fault(folder, resumable=False) is None


def test_finished_means_the_last_epoch_at_its_end(tmp_path: Path) -> None:
    checkpoint(tmp_path, "1", TrainingState(1, 0, 20))
    assert checkpoints.finished(tmp_path, 2)
    assert not checkpoints.finished(tmp_path, 3)
    checkpoint(tmp_path, "2", TrainingState(2, 4, 24))
    assert not checkpoints.finished(tmp_path, 3)


def test_an_interrupted_epoch_gets_its_number(tmp_path: Path) -> None:
    checkpoint(tmp_path, "0", TrainingState(0, 0, 10))
    checkpoint(tmp_path, "interrupted", TrainingState(1, 4, 14))
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["0", "1"]
    assert checkpoints.read_state(tmp_path / "1") == TrainingState(1, 4, 14)
    assert said == ["Training continues in epoch 2 after its step 4 (step 14)."]


def test_an_interrupted_epoch_takes_the_place_of_an_older_state_of_the_same_epoch(tmp_path: Path) -> None:
    checkpoint(tmp_path, "1", TrainingState(1, 2, 12))
    checkpoint(tmp_path, "interrupted", TrainingState(1, 4, 14))
    checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["1", "superseded_epoch1"]
    assert checkpoints.read_state(tmp_path / "1").local_step == 4


def test_an_interruption_before_the_first_step_skips_no_epoch(tmp_path: Path) -> None:
    checkpoint(tmp_path, "interrupted", checkpoints.standing(0, 0, 0))
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["no_step"] and "before its first step" in said[0]
    checkpoint(tmp_path, "interrupted", checkpoints.standing(3, 0, 30))
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["2", "no_step"] and said == ["Training continues after epoch 3 (step 30)."]


@pytest.mark.parametrize("end", [TrainingState(1, 0, 20), TrainingState(2, 0, 30)])
def test_an_interrupted_state_that_was_overtaken_is_not_used(tmp_path: Path, end: TrainingState) -> None:
    checkpoint(tmp_path, str(end.epoch), end)
    checkpoint(tmp_path, "interrupted", TrainingState(1, 10, 20))
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == [str(end.epoch), "superseded_interrupted"]
    assert "older" in said[0]


def test_a_torn_checkpoint_gives_way_to_the_one_before_and_is_kept(tmp_path: Path) -> None:
    for number in (0, 1, 2):
        checkpoint(tmp_path, str(number), TrainingState(number, 0, 10 * (number + 1)))
    cut(tmp_path / "2" / "model.safetensors")
    (tmp_path / "1" / "optimizer_state_dict.pt").unlink()
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["0", "torn_epoch1", "torn_epoch2"]
    assert "model.safetensors is cut" in said[0] and "torn_epoch2" in said[0]
    assert "optimizer_state_dict.pt is missing" in said[1] and "from epoch 1" in said[1]


def test_a_second_torn_one_does_not_replace_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        cut(checkpoint(tmp_path, "0", TrainingState(0, 0, 10)) / "model.safetensors")
        checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["torn_epoch0", "torn_epoch0_2"]


def test_a_torn_interrupted_checkpoint_is_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path, "0", TrainingState(0, 0, 10))
    cut(checkpoint(tmp_path, "interrupted", None) / "scheduler_state_dict.pt")
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["0", "torn_interrupted"]
    assert "training_state.json is missing" in said[0]


def test_an_interrupted_checkpoint_of_speculators_waits_for_its_place(tmp_path: Path) -> None:
    checkpoint(tmp_path, "0", TrainingState(0, 0, 10))
    folder = checkpoint(tmp_path, "interrupted", None)
    said = checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["0", "interrupted"] and "without its place" in said[0]
    checkpoints.write_state(folder, checkpoints.place(14, lambda epoch: 10))
    checkpoints.make_resumable(tmp_path)
    assert checkpoints.read_state(tmp_path / "1") == TrainingState(1, 4, 14)


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        (0, TrainingState(-1, 0, 0)),
        (9, TrainingState(0, 9, 9)),
        (10, TrainingState(0, 0, 10)),
        (12, TrainingState(1, 2, 12)),
        (21, TrainingState(1, 0, 21)),
        (33, TrainingState(2, 12, 33)),
    ],
)
def test_the_place_after_so_many_steps(steps: int, state: TrainingState) -> None:
    assert checkpoints.place(steps, lambda epoch: (10, 11, 20)[epoch]) == state


def test_a_torn_end_of_an_epoch_and_its_interrupted_state_leave_the_interrupted_one(tmp_path: Path) -> None:
    checkpoint(tmp_path, "0", TrainingState(0, 0, 10))
    cut(checkpoint(tmp_path, "1", None) / "model.safetensors")
    checkpoint(tmp_path, "interrupted", TrainingState(1, 10, 20))
    checkpoints.make_resumable(tmp_path)
    assert names(tmp_path) == ["0", "1", "torn_epoch1"]
    assert checkpoints.read_state(tmp_path / "1") == TrainingState(1, 10, 20)
