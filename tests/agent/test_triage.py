"""Triage of real trees: the story at its full apparent size, guards, findings, and what other tools got wrong."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures import training_runs as made
from fixtures.interpreters import AGENT_VERSIONS, interpreter

from pipeline.plan import manifest
from pipeline.plan.layout import Run as Layout
from remote.disk import beside
from remote.disk.retaining import engine
from remote.disk.survey import Survey, fit
from remote.policy import load
from remote.protocol.artifacts import KEEP, LEVEL_WHOLE, REVIEW, STALE, TORN, UNKNOWN, Artifact, Size, Verdict
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import RequestError
from remote.protocol.trash import PURGED, RESTORED, TRASHED, Pin

GB, MB = 10**9, 10**6
ROOT = Path(__file__).parents[2]
DAY = 86_400.0


def survey(workspace: Path, pins: dict[str, Pin] | None = None) -> Survey:
    return Survey(str(workspace), lambda: pins or {}, {"HOME": str(workspace / "nobody")})


def verdict(workspace: Path, name: str, pins: dict[str, Pin] | None = None) -> Verdict:
    path = str(workspace / name)
    return survey(workspace, pins).verdicts([path])[path]


def rules(found: Verdict) -> set[str]:
    return {reason.rule for reason in found.reasons}


def text(found: Verdict, rule: str) -> str:
    return next(reason.text for reason in found.reasons if reason.rule == rule)


class TestStory:
    """Two runs and their hidden states leave 143 GB of stale files; the one that follows them is under way."""

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Path:
        def of(name: str, data: str, **more: object) -> dict[str, object]:
            return {
                "verifier_name_or_path": "/data/models/Kimi-K2.5",
                "data_path": str(tmp_path / data),
                "save_path": str(tmp_path / name),
                **more,
            }

        sizes = {"weight_bytes": 2970 * MB, "optimizer_bytes": 5930 * MB}
        losses = [2.913, 2.402, 2.161, 2.034, 1.958, 1.921, 1.897, None, None, None]
        made.run(tmp_path / "output_1k", losses, 6, settings=of("output_1k", "data_1k"), **sizes)
        trial = [3.402, 3.117, 3.054]
        ended = made.LONG_AGO - DAY
        made.run(tmp_path / "output_test", trial, 2, ended, of("output_test", "data_test"), **sizes)
        better = [1.9, 1.71, 1.65]
        validating = of("output_2k", "data_2k", val_data_path=str(tmp_path / "data_test"))
        made.run(tmp_path / "output_2k", better, 2, made.LONG_AGO + DAY, validating)
        made.data(tmp_path / "data_1k", 1000, 27 * MB)
        made.data(tmp_path / "data_test", 8, 213 * MB // 8)
        made.data(tmp_path / "data_2k", 2000)
        return tmp_path

    def test_what_is_proposed_and_what_is_kept(self, workspace: Path) -> None:
        answer = survey(workspace).triage()
        alone = {Path(item.path).name: item for item in answer.artifacts if not item.run and item.movable}
        words = {name: item.verdict.word for name, item in alone.items()}
        assert words == {
            "output_1k": STALE, "output_test": STALE, "data_1k": STALE,
            "data_test": KEEP, "output_2k": KEEP, "data_2k": KEEP,
        }  # fmt: skip
        stale = [item for item in alone.values() if item.verdict.word == STALE]
        assert sum(item.size.apparent for item in stale) == pytest.approx(143 * GB, rel=0.01)
        run = alone["output_1k"].verdict
        superseded = "superseded: output_2k, newer and for the same verifier, has validation loss 1.650 against 1.897"
        assert text(run, "superseded") == superseded
        assert "not open or mapped by any process (kernel lease," in text(run, "idle")
        assert text(run, "rebuild").startswith("rebuilding costs about 110 minutes: 10 epochs of 11 min")
        assert text(alone["data_1k"].verdict, "orphaned") == (
            "orphaned: only output_1k used it, and that is superseded"
        )
        tiny = "kept: tiny reference, 213 MB, used by validation of output_2k (val_data_path)"
        assert text(alone["data_test"].verdict, "tiny_reference") == tiny
        assert all(reason.observed and reason.source for reason in run.reasons if reason.rule != "shared")

    def test_one_prune_frees_it_and_undo_brings_it_all_back(self, workspace: Path) -> None:
        stale, kept = ("output_1k", "output_test", "data_1k"), ("data_test", "output_2k", "data_2k")
        before = {str(path): path.lstat().st_ino for path in workspace.rglob("*")}
        deletion = engine(load(str(workspace), False, ()))
        plan = deletion.plan([*stale, *kept], LEVEL_WHOLE)
        assert sorted(Path(item.path).name for item in plan.items) == sorted(stale)
        assert sorted(Path(item.path).name for item in plan.stays) == sorted(kept)
        pruned = deletion.prune(plan.id, plan.fingerprint, "", "ann", None)
        assert pruned.state == TRASHED and pruned.freed.planned == plan.exclusive > 0
        assert sorted(path.name for path in workspace.iterdir() if not path.name.startswith(".")) == sorted(kept)
        assert deletion.undo(pruned.id, "ann").state == RESTORED
        assert {name: Path(name).lstat().st_ino for name in before} == before

        plan = deletion.plan(stale, LEVEL_WHOLE)
        pruned = deletion.prune(plan.id, plan.fingerprint, "", "ann", None)
        [purged] = deletion.purge(pruned.id, "ann").receipts
        assert purged.state == PURGED
        assert purged.freed.unlinked == pytest.approx(plan.exclusive, rel=0.01)
        assert purged.freed.filesystem is not None

    def test_the_hidden_states_know_what_they_cost(self, workspace: Path) -> None:
        found = verdict(workspace, "data_1k/hidden_states")
        assert found.word == STALE
        assert found.rebuild_minutes == pytest.approx(22.0, abs=0.1)
        assert "its 1,000 samples took 22 min" in found.rebuild_basis

    def test_without_a_better_run_nothing_is_stale(self, workspace: Path) -> None:
        (workspace / "output_2k").rename(workspace.parent / "elsewhere")
        words = {name: verdict(workspace, name).word for name in ("output_1k", "data_1k", "output_test", "data_2k")}
        assert words == {"output_1k": KEEP, "data_1k": KEEP, "output_test": STALE, "data_2k": REVIEW}

    @pytest.mark.parametrize("loss", [1.897, 2.5])
    def test_a_newer_run_that_did_no_better_supersedes_nothing(self, workspace: Path, loss: float) -> None:
        metrics = workspace / "output_2k" / "2" / "val_metrics.json"
        metrics.write_text(json.dumps({"loss_epoch": loss}))
        assert verdict(workspace, "output_1k").word == KEEP and verdict(workspace, "data_1k").word != STALE

    def test_another_verifier_supersedes_nothing(self, workspace: Path) -> None:
        path = workspace / "output_2k" / "run.yaml"
        path.write_text(path.read_text().replace("Kimi-K2.5", "Another"))
        assert verdict(workspace, "output_1k").word == KEEP

    def test_in_one_run_the_recommended_ones(self, workspace: Path) -> None:
        listed = survey(workspace).checkpoints("output_1k").checkpoints
        words = {item.name: item.artifact.verdict.word for item in listed}
        assert words == {**dict.fromkeys("01234578", STALE), **dict.fromkeys("689", KEEP)} | {"8": KEEP}
        second = next(item.artifact.verdict for item in listed if item.name == "3")
        assert text(second, "superseded") == "superseded: 6 has validation loss 1.897 against 2.034"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A run of five epochs, the second of which nothing protects."""
    made.run(tmp_path / "run", [1.5, 1.4, 1.3, 1.2, 1.1], best=4)
    assert verdict(tmp_path, "run/1").word == STALE
    return tmp_path


class TestGuards:
    """Each one alone turns a stale checkpoint into one that is kept."""

    def kept(self, workspace: Path, rule: str, name: str = "run/1", pins: dict[str, Pin] | None = None) -> str:
        found = verdict(workspace, name, pins)
        assert found.word == KEEP and rule in rules(found), found
        return text(found, rule)

    def test_open_for_reading(self, workspace: Path) -> None:
        with holder("import sys; f = open(sys.argv[1])", workspace / "run" / "1" / "model.safetensors") as pid:
            assert f"process {pid}" in self.kept(workspace, "in_use")
            self.kept(workspace, "in_use", "run")
        assert verdict(workspace, "run/1").word == STALE

    def test_mapped_with_its_descriptor_closed(self, workspace: Path) -> None:
        code = (
            "import sys, mmap; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); f.close()"
        )
        with holder(code, workspace / "run" / "1" / "model.safetensors") as pid:
            assert f"process {pid}" in self.kept(workspace, "in_use")

    def test_open_for_writing(self, workspace: Path) -> None:
        with holder("import sys; f = open(sys.argv[1], 'r+b')", workspace / "run" / "1" / "model.safetensors"):
            assert "model.safetensors" in self.kept(workspace, "being_written")

    def test_changed_a_moment_ago(self, workspace: Path) -> None:
        os.utime(workspace / "run" / "1" / "config.json")
        assert "ago" in self.kept(workspace, "being_written")

    def test_named_by_a_command_line(self, workspace: Path) -> None:
        """What a server has loaded and closed is no holder, but its restart would fail."""
        with holder("import sys", f"--model={workspace}/run/1") as pid:
            assert self.kept(workspace, "referenced") == f"kept: process {pid} (python) names it (command line, model)"
            self.kept(workspace, "run_alive", "run")
            assert verdict(workspace, "run/0").word == STALE, "another checkpoint is not meant"

    def test_named_relative_to_a_working_directory(self, workspace: Path) -> None:
        with holder("import sys", "run/1", cwd=workspace):
            self.kept(workspace, "referenced")

    def test_a_working_directory(self, workspace: Path) -> None:
        with holder("import sys", "x", cwd=workspace / "run" / "1"):
            assert "working directory" in self.kept(workspace, "referenced")

    def test_an_environment_variable(self, workspace: Path) -> None:
        with holder("import sys", "x", environment={"MODEL_DIR": str(workspace / "run" / "1")}):
            assert "environment, MODEL_DIR" in self.kept(workspace, "referenced")
        with holder("import sys", "x", environment={"OLDPWD": str(workspace / "run" / "1")}):
            assert verdict(workspace, "run/1").word == STALE, "a shell was there once"

    def test_a_trainer_keeps_its_run_but_not_its_old_checkpoints(self, workspace: Path) -> None:
        with holder("import sys", "--save-path", str(workspace / "run")):
            self.kept(workspace, "run_alive", "run")
            assert verdict(workspace, "run/1").word == STALE

    def test_a_symbolic_link(self, workspace: Path) -> None:
        (workspace / "serving").mkdir()
        (workspace / "serving" / "current").symlink_to("../run/1")
        assert self.kept(workspace, "referenced") == "kept: the link serving/current points to it"

    def test_dvc_7610_a_link_from_another_project_counts(self, workspace: Path) -> None:
        made.run(workspace / "other", [1.0], best=0)
        (workspace / "other" / "from").symlink_to(workspace / "run" / "1")
        self.kept(workspace, "referenced")

    def test_a_manifest(self, workspace: Path) -> None:
        made.checkpoint(workspace / "draft_x")
        path = str(workspace / "run" / "1" / "model.safetensors")
        record = manifest.Manifest("export", "x", {}, {path: "f"}, {str(workspace / "draft_x"): {"bytes": 1}})
        manifest.write(Layout(str(workspace), "x").manifest("export"), record)
        assert "draft_x uses run/1/model.safetensors" in self.kept(workspace, "referenced")

    def test_a_lock_of_a_living_stage(self, workspace: Path) -> None:
        locks = Layout(str(workspace), "x").locks
        locks.mkdir(parents=True)
        with open(locks / "run.lock", "w") as file:
            file.write("train-1\n")
            file.flush()
            assert verdict(workspace, "run").word != KEEP or "run_alive" not in rules(verdict(workspace, "run"))
            fcntl.flock(file, fcntl.LOCK_EX)
            assert "train-1" in self.kept(workspace, "run_alive", "run")

    @pytest.mark.parametrize("name", ["run", "run/1", "run/1/model.safetensors"])
    def test_pinned(self, workspace: Path, name: str) -> None:
        path = str(workspace / name)
        assert "ann" in self.kept(workspace, "pinned", pins={path: Pin(path, True, "ann")})

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_of_another_user(self, workspace: Path) -> None:
        os.chown(workspace / "run" / "1" / "config.json", 65534, -1)
        assert "nobody" in self.kept(workspace, "foreign_owner")

    def test_two_runs_in_one_directory(self, workspace: Path) -> None:
        made.age(workspace / "run" / "0", made.LONG_AGO + 5 * DAY)
        assert "contradict" in self.kept(workspace, "mixed_runs")

    def test_newest_two_best_and_last_resumable(self, workspace: Path) -> None:
        assert {"best", "newest_two", "last_resumable"} <= rules(verdict(workspace, "run/4"))
        assert "newest_two" in rules(verdict(workspace, "run/3"))
        for epoch in (1, 2, 3, 4):
            (workspace / "run" / str(epoch) / "optimizer_state_dict.pt").unlink()
        assert "only checkpoint that can resume" in self.kept(workspace, "last_resumable", "run/0")

    def test_unknown_stays_unknown(self, workspace: Path) -> None:
        (workspace / "mystery").mkdir()
        (workspace / "mystery" / "file").touch()
        made.age(workspace / "mystery", made.LONG_AGO)
        for name in ("mystery", "run/1/model.safetensors", "not there"):
            found = verdict(workspace, name)
            assert found.word == UNKNOWN and [one.rule for one in found.reasons if one.guard] == ["unknown_layout"]

    def test_our_own_records_and_the_trash_are_shown_and_never_go(self, workspace: Path) -> None:
        (workspace / ".eagle_trash" / "x").mkdir(parents=True)
        (workspace / ".eagle_trash" / "x" / "file").write_bytes(b"x" * 8192)
        found = {Path(item.path).name: item for item in survey(workspace).triage().artifacts}[".eagle_trash"]
        assert found.size.allocated == 8192 and not found.movable and "own" in rules(found.verdict)

    def test_logs_cannot_be_recorded_again(self, workspace: Path) -> None:
        (workspace / "wandb" / "offline-run-1").mkdir(parents=True)
        assert "1 wandb runs are not synced" in self.kept(workspace, "irreplaceable", "wandb")

    def test_the_verifier_of_a_draft(self, workspace: Path) -> None:
        (workspace / "verifier").mkdir()
        (workspace / "verifier" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
        made.weights(workspace / "verifier" / "model.safetensors")
        made.age(workspace / "verifier", made.LONG_AGO)
        assert verdict(workspace, "verifier").word == REVIEW
        made.checkpoint(workspace / "draft_x", verifier=str(workspace / "verifier"))
        assert "draft_x uses it" in self.kept(workspace, "referenced", "verifier")


class TestFindings:
    def test_torn(self, workspace: Path) -> None:
        made.cut(workspace / "run" / "4" / "model.safetensors")
        found = verdict(workspace, "run/4")
        assert found.word == KEEP and "best" in rules(found), "what the run calls its best is looked at by a person"
        made.cut(workspace / "run" / "2" / "model.safetensors")
        assert verdict(workspace, "run/2").word == TORN
        assert "model.safetensors is cut" in text(verdict(workspace, "run/2"), "torn")

    def test_torn_but_open_is_not_torn_away(self, workspace: Path) -> None:
        made.cut(workspace / "run" / "2" / "model.safetensors")
        with holder("import sys; f = open(sys.argv[1])", workspace / "run" / "2" / "model.safetensors"):
            assert verdict(workspace, "run/2").word == KEEP

    def test_a_run_without_a_whole_checkpoint(self, tmp_path: Path) -> None:
        made.run(tmp_path / "run", [1.0], best=0)
        made.cut(tmp_path / "run" / "0" / "model.safetensors")
        assert verdict(tmp_path, "run").word == TORN and "no_checkpoint" in rules(verdict(tmp_path, "run"))

    def test_art_117_no_best_no_accusation(self, tmp_path: Path) -> None:
        made.run(tmp_path / "run", [None] * 6)
        found = verdict(tmp_path, "run/1")
        assert found.word == REVIEW and "no_best" in rules(found)

    def test_transformers_48319_a_dangling_best(self, workspace: Path) -> None:
        (workspace / "run" / "checkpoint_best").unlink()
        made.link(workspace / "run" / "checkpoint_best", "9", made.LONG_AGO)
        assert verdict(workspace, "run/1").word == REVIEW
        assert "points to 9" in text(verdict(workspace, "run"), "dangling_best")

    def test_systemd_30760_age_accuses_nobody(self, tmp_path: Path) -> None:
        made.data(tmp_path / "data_old", 3, ended=1e9)
        made.checkpoint(tmp_path / "draft_old", modified=1e9)
        assert verdict(tmp_path, "data_old").word == REVIEW and verdict(tmp_path, "draft_old").word == KEEP

    def test_a_data_set_whose_prompts_are_all_in_a_newer_one(self, tmp_path: Path) -> None:
        lines = [f'{{"id": "{n}", "conversations": [{{"from": "human", "value": "{n}"}}]}}\n' for n in range(20)]
        for name, count, at in (("data_1k", 10, made.LONG_AGO), ("data_2k", 20, made.LONG_AGO + DAY)):
            made.data(tmp_path / name / "prepared", count, ended=at)
            (tmp_path / name / "prompts.jsonl").write_text("".join(lines[:count]))
            made.age(tmp_path / name / "prompts.jsonl", at)
        found = verdict(tmp_path, "data_1k")
        assert found.word == STALE
        assert text(found, "superseded") == "superseded: all its 10 prompts are in data_2k, which is newer"
        assert verdict(tmp_path, "data_2k").word == REVIEW

    def test_a_save_path_that_the_trainer_empties(self, tmp_path: Path) -> None:
        made.run(tmp_path / "run", [1.0], best=0, settings={"save_best": "true"})
        assert "everything else" in text(verdict(tmp_path, "run"), "save_best")

    def test_left_over_locks(self, tmp_path: Path) -> None:
        made.data(tmp_path / "data", 3)
        for number in range(2):
            (tmp_path / "data" / "hidden_states" / f"hs_{number}.safetensors.lock").touch()
        assert "2 .lock files" in text(verdict(tmp_path, "data/hidden_states"), "locks")

    def test_hard_links_elsewhere_are_not_counted_as_freed(self, workspace: Path) -> None:
        (workspace / "export").mkdir()
        os.link(workspace / "run" / "1" / "model.safetensors", workspace / "export" / "model.safetensors")
        found = verdict(workspace, "run/1")
        blocks = sum(path.stat().st_blocks * 512 for path in (workspace / "run" / "1").iterdir())
        shared = (workspace / "export" / "model.safetensors").stat().st_blocks * 512
        assert found.reclaim and found.reclaim["whole"] == blocks - shared and "shared" in rules(found)


class TestBeside:
    def test_longhorn_1339_deleted_files_that_are_still_open(self, tmp_path: Path) -> None:
        path = tmp_path / "big.log"
        path.write_bytes(b"x" * 2 * 2**20)
        code = "import sys, os; f = open(sys.argv[1]); os.unlink(sys.argv[1])"
        with holder(code, path) as pid:
            found = next(item for item in beside.deleted_open(time.time()) if item.path == str(path))
        assert found.size.allocated >= 2 * 2**20 and not found.movable
        assert f"ending process {pid} (python) would free it" in found.verdict.reasons[0].text

    def test_vllm_51579_segments_of_a_dead_engine(self, tmp_path: Path) -> None:
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        (tmp_path / f"vllm_offload_{dead.pid}.mmap").touch()
        (tmp_path / f"vllm_offload_{os.getpid()}.mmap").touch()
        (tmp_path / "nccl-AbC123").touch()
        (tmp_path / "sem.mp-12345678").touch()
        found = {Path(item.path).name: item.detail for item in beside.shared_memory(str(tmp_path))}
        assert found == {
            f"vllm_offload_{dead.pid}.mmap": f"left over: its creator, process {dead.pid}, is gone",
            f"vllm_offload_{os.getpid()}.mmap": "",
            "nccl-AbC123": "",
        }

    def test_wandb_7673_caches_outside_are_shown_and_not_moved(self, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        for name in (".cache/vllm/x", ".cache/huggingface/hub/models--a--b", ".cache/wandb"):
            (tmp_path / "home" / name).mkdir(parents=True)
        (tmp_path / "home/.cache/vllm/x/file").write_bytes(b"x" * 9000)
        found = Survey(str(tmp_path / "work"), dict, {"HOME": str(tmp_path / "home")}).triage().artifacts
        kinds = {os.path.relpath(item.path, tmp_path): item for item in found if item.path.startswith(str(tmp_path))}
        assert {name: item.kind for name, item in kinds.items()} == {
            "home/.cache/vllm": "compile_cache", "home/.cache/huggingface/hub": "hub_cache", "home/.cache/wandb": "log",
        }  # fmt: skip
        assert not any(item.movable for item in kinds.values()) and kinds["home/.cache/vllm"].size.apparent == 9000


def test_a_selection_of_directories(workspace: Path) -> None:
    made.run(workspace / "other", [1.0], best=0)
    listed = survey(workspace).triage(["other"]).artifacts
    assert {os.path.relpath(item.path, workspace) for item in listed} == {"other", "other/0"}


def test_after_forgetting_it_reads_again(workspace: Path) -> None:
    kept = survey(workspace)
    kept.triage()
    (workspace / "run" / "1").rename(workspace / "gone")
    assert any(item.path.endswith("run/1") for item in kept.triage().artifacts), "within five seconds"
    kept.forget()
    assert not any(item.path.endswith("run/1") for item in kept.triage().artifacts)


def test_what_is_no_run_has_no_checkpoints(workspace: Path) -> None:
    with pytest.raises(RequestError, match="is no training run"):
        survey(workspace).checkpoints(".")
    assert survey(workspace).checkpoints_now(str(workspace)) == ()


def test_no_workspace_and_one_that_is_gone(tmp_path: Path) -> None:
    assert "No workspace is set" in Survey(None).triage().problem
    assert "does not exist" in survey(tmp_path / "gone").triage().problem


def test_the_smallest_are_left_out_of_a_frame() -> None:
    verdicts = Verdict(REVIEW)
    listed = [Artifact(f"/w/{n}", "run", Size(n, n, n, 1), verdicts) for n in range(3000)]
    shown, left_out = fit(listed, 50_000)
    assert shown[0].path == "/w/2999" and left_out == 3000 - len(shown) > 0


SCRIPT = """
import sys, json
from remote.disk.survey import Survey
answer = Survey(sys.argv[1], dict, {"HOME": "/nonexistent"}).triage()
print(json.dumps({item.path: item.verdict.word for item in answer.artifacts if item.movable}))
"""


@pytest.mark.system
@pytest.mark.parametrize("version", AGENT_VERSIONS)
def test_on_the_pythons_of_hosts(workspace: Path, version: str) -> None:
    here = {item.path: item.verdict.word for item in survey(workspace).triage().artifacts if item.movable}
    answer = subprocess.run(
        [interpreter(version), "-c", SCRIPT, str(workspace)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == here


class holder:  # noqa: N801 - reads as a context
    """A process that does something with a file and then waits; gives its pid."""

    def __init__(
        self, code: str, argument: object, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        # The name of the program is the same everywhere.
        script = f"import ctypes; ctypes.CDLL(None).prctl(15, b'python'); {code}; print(flush=True); sys.stdin.read()"
        words = str(argument).split() if "--" in str(argument) else [str(argument)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            cwd=cwd, env={**os.environ, **(environment or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> int:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"\n"
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def as_nobody(workspace: Path, name: str) -> Verdict:
    """The verdict that an agent of an ordinary user comes to, who owns the workspace."""
    for folder, folders, names in os.walk(workspace):
        for child in (folder, *(os.path.join(folder, item) for item in (*folders, *names))):
            os.chown(child, 65534, 65534, follow_symlinks=False)
    for parent in (workspace, *workspace.parents):
        if parent.owner() == "root" and parent.stat().st_mode & 0o5 != 0o5:
            parent.chmod(parent.stat().st_mode | 0o55)
    verdict(workspace, name)  # everything that is needed is imported
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(to_wire(verdict(workspace, name))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        return from_wire(Verdict, json.loads(file.read()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
class TestOrdinaryUser:
    def test_verdicts_are_the_same(self, workspace: Path) -> None:
        found = as_nobody(workspace, "run/1")
        assert found.word == STALE and "kernel lease" in text(found, "idle")

    def test_a_holder_that_cannot_be_seen_is_found_by_the_lease(self, workspace: Path) -> None:
        with holder("import sys; f = open(sys.argv[1])", workspace / "run" / "1" / "model.safetensors"):
            found = as_nobody(workspace, "run/1")
        assert found.word == KEEP and "a process that cannot be seen from here" in text(found, "in_use")


@pytest.mark.parametrize("seed", range(4))
def test_sizes_are_those_of_du(tmp_path: Path, seed: int) -> None:
    """Nested artifacts are measured apart; the whole still is what du says."""
    chance = random.Random(seed)
    made.run(tmp_path / "run", [1.0, 0.9], best=1, optimizer_bytes=10**9)
    made.data(tmp_path / "data_x" / "prepared", chance.randint(2, 30), 50_000)
    for number in range(10):
        path = tmp_path / chance.choice(["run", "run/0", "data_x", "data_x/prepared/hidden_states"]) / f"more{number}"
        path.write_bytes(b"x" * chance.randint(0, 50_000))
    os.link(tmp_path / "run" / "0" / "model.safetensors", tmp_path / "data_x" / "again")
    os.link(tmp_path / "run" / "0" / "config.json", tmp_path / "run" / "1" / "config2.json")
    found = {os.path.relpath(item.path, tmp_path): item.size for item in survey(tmp_path).triage().artifacts}
    for name in ("run", "run/0", "run/1", "data_x", "data_x/prepared", "data_x/prepared/hidden_states"):
        answer = subprocess.run(["du", "-s", "-B1", tmp_path / name], capture_output=True, text=True, check=True)
        folders = sum(os.stat(folder).st_blocks * 512 for folder, _, _ in os.walk(tmp_path / name))
        assert found[name].allocated == int(answer.stdout.split()[0]) - folders, name
    assert found["run"].exclusive < found["run"].allocated and found["run/0"].exclusive < found["run/0"].allocated
