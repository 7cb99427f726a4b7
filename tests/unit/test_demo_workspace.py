from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from eagle_console.demo.home import demo_home
from eagle_console.demo.workspace import create_workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_workspace(tmp_path_factory.mktemp("demo"))


def allocated(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize(
    ("name", "megabytes", "tolerance"),
    [("output_1k", 89.0, 0.1), ("output_test", 27.0, 0.1), ("data_1k", 27.0, 0.1), ("data_test", 0.213, 0.001)],
)
def test_sizes_on_the_disk(workspace: Path, name: str, megabytes: float, tolerance: float) -> None:
    assert allocated(workspace / name) / 1e6 == pytest.approx(megabytes, abs=tolerance)


def test_says_that_it_is_simulated(workspace: Path) -> None:
    assert "Simulated data" in (workspace / "README.txt").read_text()


def test_epochs_look_like_those_of_speculators(workspace: Path) -> None:
    run = workspace / "output_1k"
    assert sorted(path.name for path in run.iterdir() if path.is_dir() and not path.is_symlink()) == list("0123456789")
    assert (run / "checkpoint_best").readlink() == Path("6")
    assert (run / "epoch9_end").readlink() == Path("9")
    records = {path.parent.name: json.loads(path.read_text())["loss_epoch"] for path in run.glob("?/val_metrics.json")}
    assert sorted(records) == list("0123456")
    assert min(records.values()) == records["6"]
    state = json.loads((run / "9" / "training_state.json").read_text())
    assert state == {"epoch": 9, "local_step": 0, "global_step": 10_000}
    times = [(run / str(epoch)).stat().st_mtime for epoch in range(10)]
    assert [round(after - before) for before, after in zip(times, times[1:], strict=False)] == [166] * 9


def test_the_newest_run_was_killed_while_it_saved(workspace: Path) -> None:
    run = workspace / "output_2k"
    assert (run / "checkpoint_best").readlink() == Path("1") and not (run / "epoch2_end").is_symlink()
    assert sorted(path.name for path in (run / "2").iterdir()) == [
        "config.json",
        "model.safetensors",
        "train_command.txt",
    ]
    whole, torn = ((run / epoch / "model.safetensors").stat().st_size for epoch in "12")
    assert torn < whole / 2


def test_the_runs_name_what_they_were_made_from(workspace: Path) -> None:
    options = {
        run: dict(line.split(": ", 1) for line in (workspace / run / "run.yaml").read_text().splitlines())
        for run in ("output_1k", "output_test", "output_2k")
    }
    named = {run: json.loads(found["data_path"]) for run, found in options.items()}
    assert named == {
        "output_1k": str(workspace / "data_1k"),
        "output_test": str(workspace / "data_1k"),
        "output_2k": str(workspace / "data_2k"),
    }
    assert [run for run, found in options.items() if "val_data_path" in found] == ["output_2k"]
    assert len({found["verifier_name_or_path"] for found in options.values()}) == 1


def test_nothing_in_a_finished_run_is_new(workspace: Path) -> None:
    newest = max(path.lstat().st_mtime for path in (workspace / "output_1k").rglob("*"))
    assert newest < time.time() - 6 * 86_400


def test_every_safetensors_file_is_covered_by_its_header(workspace: Path) -> None:
    torn = workspace / "output_2k" / "2" / "model.safetensors"
    files = [path for path in workspace.rglob("*.safetensors") if path != torn]
    assert len(files) == 10 + 3 + 2 + 1000 + 100 + 8
    for path in files:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        header.pop("__metadata__")
        end = 0
        for tensor in header.values():
            width = {"BF16": 2, "I64": 8}[tensor["dtype"]]
            count = 1
            for extent in tensor["shape"]:
                count *= extent
            assert tensor["data_offsets"] == [end, end + width * count]
            end += width * count
        assert path.stat().st_size == 8 + length + end


def test_states_are_sound_zip_files(workspace: Path) -> None:
    for name in ("optimizer_state_dict.pt", "scheduler_state_dict.pt"):
        with zipfile.ZipFile(workspace / "output_1k" / "9" / name) as archive:
            assert archive.testzip() is None
            assert any(member.endswith("/data.pkl") for member in archive.namelist())


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    shutil.rmtree(workspace / "output_test")
    assert create_workspace(tmp_path) == workspace
    assert not (workspace / "output_test").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


def test_two_processes_at_once_make_one_workspace(tmp_path: Path) -> None:
    code = "import sys, pathlib, eagle_console.demo.workspace as w; w.create_workspace(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]
    assert len(list((tmp_path / "workspace" / "data_1k" / "hidden_states").iterdir())) == 1000


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name, age in (("workspace.new.old", 3600), ("workspace.new.young", 0)):
        (tmp_path / name).mkdir()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    create_workspace(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["workspace", "workspace.new.young"]


def test_the_home_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EAGLE_CONSOLE_DEMO_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/x/state")
    assert demo_home() == Path("/x/state/eagle_console/demo")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert demo_home() == Path.home() / ".local/state/eagle_console/demo"
    monkeypatch.setenv("EAGLE_CONSOLE_DEMO_HOME", "/elsewhere")
    assert demo_home() == Path("/elsewhere")
    assert "eagle-" not in str(demo_home())
