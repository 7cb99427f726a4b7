"""The deletion engine on real files: what may go goes as one rename, everything else stays, and undo brings it back."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent.agent_process import ROOT, AgentProcess
from agent.deletingkit import Bench, fill, inodes, prune, refusal
from fixtures.interpreters import AGENT_VERSIONS, interpreter

from remote.disk import idleness, receipts
from remote.disk import plan as plans
from remote.disk.syscalls import Syscalls, Unsupported
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE, Artifact, Checkpoint, Size, Verdict
from remote.protocol.errors import FAILED, NOT_FOUND, REFUSED


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_prune_and_undo_keep_every_inode(bench: Bench) -> None:
    before = inodes(bench.workspace)
    engine = bench.engine()
    plan = engine.plan(["out/0", str(bench.run / "1")], LEVEL_WHOLE)
    assert inodes(bench.workspace) == before, "a plan changes nothing"
    assert [item.path for item in plan.items] == [str(bench.run / "0"), str(bench.run / "1")]
    receipt = prune(engine, plan)
    assert receipt.state == "trashed" and sorted(os.listdir(bench.run)) == ["2"] and len(bench.trash()) == 2
    assert (bench.workspace / ".eagle_trash").stat().st_mode & 0o777 == 0o700
    assert engine.trash().receipts[0].id == receipt.id and engine.trash().allocated > 0
    restored = engine.undo(receipt.id, "tester")
    assert restored.state == "restored" and bench.trash() == []
    assert {path: inode for path, inode in inodes(bench.workspace).items() if path.startswith("out")} == before


def test_trim_takes_optimizer_and_scheduler_only_and_undo_restores_them(bench: Bench) -> None:
    before = inodes(bench.run)
    engine = bench.engine()
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_TRIM))
    assert sorted(os.listdir(bench.run / "0")) == ["config.json", "model.safetensors"]
    engine.undo(receipt.id, "tester")
    assert inodes(bench.run) == before


def test_purge_measures_what_it_unlinks(bench: Bench) -> None:
    (bench.workspace / "other").mkdir()
    os.link(bench.run / "0" / "model.safetensors", bench.workspace / "other" / "weights")
    engine = bench.engine()
    plan = engine.plan(["out/0", "out/1"], LEVEL_WHOLE)
    shared = (bench.workspace / "other" / "weights").stat().st_blocks * 512
    assert plan.exclusive == sum(item.allocated for item in plan.items) - shared
    receipt = prune(engine, plan)
    [purged] = engine.purge(receipt.id, "tester").receipts
    assert purged.state == "purged" and bench.trash() == []
    assert purged.freed.unlinked == plan.exclusive and str(shared) in purged.freed.note
    assert (bench.workspace / "other" / "weights").stat().st_nlink == 1
    assert "purged" in refusal(engine.undo, receipt.id, "tester").message
    assert engine.purge(receipt.id, "tester").receipts[0].state == "purged", "asked again, it answers the same"


@pytest.mark.parametrize("holder", ["reader", "writer", "mapping", "hard link"])
def test_what_is_in_use_stays(bench: Bench, holder: str) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0", "out/1"], LEVEL_WHOLE)
    path = bench.run / "0" / "model.safetensors"
    if holder == "hard link":
        (bench.workspace / "x").mkdir()
        os.link(path, bench.workspace / "x" / "link")
        plan = engine.plan(["out/0", "out/1"], LEVEL_WHOLE)
        path = bench.workspace / "x" / "link"
    mode = "r+b" if holder == "writer" else "rb"
    with open(path, mode) as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if holder == "mapping" else None
        if mapping:
            file.close()
        receipt = prune(engine, plan)
        assert [item.state for item in receipt.items] == ["refused", "trashed"]
        word = "being written" if holder == "writer" else "in use"
        assert word in receipt.items[0].problem and "model.safetensors" in receipt.items[0].problem
        assert word in refusal(engine.plan, ["out/0"], LEVEL_WHOLE).message
        assert (bench.run / "0").exists()
        if mapping:
            mapping.close()


def change_added(folder: Path) -> None:
    (folder / "new").write_bytes(b"")


def change_grown(folder: Path) -> None:
    with open(folder / "config.json", "ab") as file:
        file.write(b"x")


def change_forged(folder: Path) -> None:
    """The same size and the same modification time: only the change time tells."""
    path = folder / "config.json"
    status = path.stat()
    data = bytes(reversed(path.read_bytes()))
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def change_replaced(folder: Path) -> None:
    folder.rename(folder.parent / "away")
    shutil.copytree(folder.parent / "away", folder)


def change_removed(folder: Path) -> None:
    (folder / "config.json").unlink()


def change_linked(folder: Path) -> None:
    os.link(folder / "config.json", folder.parent.parent / "second_name")


def change_to_link(folder: Path) -> None:
    folder.rename(folder.parent / "away")
    folder.symlink_to("away")


@pytest.mark.parametrize(
    "change",
    [change_added, change_grown, change_forged, change_replaced, change_removed, change_linked, change_to_link],
)
def test_what_changed_since_the_plan_stays(bench: Bench, change: object) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    change(bench.run / "0")  # type: ignore[operator]
    left = inodes(bench.run)
    error = refusal(prune, engine, plan)
    assert error.code == REFUSED and "nothing was changed" in error.message
    assert inodes(bench.run) == left and bench.trash() == []


def test_a_parent_that_became_a_link_is_not_followed(bench: Bench) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    bench.run.rename(bench.workspace / "away")
    bench.run.symlink_to(bench.workspace / "away")
    assert "symbolic link" in refusal(prune, engine, plan).message
    assert (bench.workspace / "away" / "0").exists()
    fill(bench.workspace / "deep" / "out" / "0")
    plan = engine.plan(["deep/out/0"], LEVEL_WHOLE)
    (bench.workspace / "deep").rename(bench.workspace / "elsewhere")
    (bench.workspace / "deep").symlink_to("elsewhere")  # it leads to the very inode that was planned
    assert "symbolic link" in refusal(prune, engine, plan).message
    assert (bench.workspace / "elsewhere" / "out" / "0").exists()


@pytest.mark.parametrize(
    "path",
    ["/", "..", ".", "", "out/..", "out/../out/0", "/etc", ".eagle_trash", ".eagle_console/jobs", "out/\0", "//"],
)
def test_what_may_not_be_named_at_all(bench: Bench, path: str) -> None:
    engine = bench.engine()
    before = inodes(bench.workspace)
    assert refusal(engine.plan, [path], LEVEL_WHOLE).code in (REFUSED, "bad_argument")
    assert refusal(engine.plan, ["out/0", path], LEVEL_WHOLE).code in (REFUSED, "bad_argument")
    assert refusal(engine.plan, [str(bench.workspace)], LEVEL_WHOLE).code == REFUSED
    assert refusal(engine.plan, [str(bench.workspace.parent)], LEVEL_WHOLE).code == REFUSED
    assert refusal(engine.plan, [str(bench.foreign)], LEVEL_WHOLE).code == REFUSED
    assert inodes(bench.workspace) == before


def test_nested_targets_are_one_and_links_are_none(bench: Bench) -> None:
    (bench.run / "checkpoint_best").symlink_to("2")
    engine = bench.engine()
    plan = engine.plan(["out/0/config.json", "out/0", "out/0/", "out/checkpoint_best"], LEVEL_WHOLE)
    assert [item.path for item in plan.items] == [str(bench.run / "0")]
    assert {Path(item.path).name: item.refused.split(":")[0] for item in plan.stays} == {
        "config.json": f"it is part of {bench.run / '0'}, which is asked for too",
        "checkpoint_best": "it is a symbolic link, and none is followed",
    }
    fill(bench.run / "9" / ".eagle_console")
    os.mkfifo(bench.run / "1" / "pipe")
    assert "another workspace" in refusal(engine.plan, ["out/9"], LEVEL_WHOLE).message
    assert "pipe" in refusal(engine.plan, ["out/1"], LEVEL_WHOLE).message


def test_undo_overwrites_nothing(bench: Bench) -> None:
    engine = bench.engine()
    receipt = prune(engine, engine.plan(["out/0", "out/1"], LEVEL_WHOLE))
    (bench.run / "0").mkdir()  # an empty directory: a plain rename would replace it silently
    again = engine.undo(receipt.id, "tester")
    assert [item.state for item in again.items] == ["trashed", "restored"]
    assert "something else has its name" in again.items[0].problem
    assert os.listdir(bench.run / "0") == [] and len(bench.trash()) == 1
    (bench.run / "0").rmdir()
    assert engine.undo(receipt.id, "tester").state == "restored" and (bench.run / "0" / "config.json").exists()


def test_undo_refuses_where_the_folder_is_gone_or_the_thing_another(bench: Bench) -> None:
    engine = bench.engine()
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
    bench.run.rename(bench.workspace / "moved")
    assert "does not exist" in refusal(engine.undo, receipt.id, "tester").message
    (bench.workspace / "moved").rename(bench.run)
    [name] = bench.trash()
    held = bench.workspace / ".eagle_trash" / name
    held.rename(bench.workspace / "stolen")
    shutil.copytree(bench.workspace / "stolen", held)
    assert "no longer in the trash" in refusal(engine.undo, receipt.id, "tester").message
    assert not (bench.run / "0").exists()


def test_a_trim_is_undone_wholly_or_not_at_all(bench: Bench) -> None:
    engine = bench.engine()
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_TRIM))
    (bench.run / "0" / "scheduler_state_dict.pt").write_bytes(b"new")
    assert refusal(engine.undo, receipt.id, "tester").code == REFUSED
    assert not (bench.run / "0" / "optimizer_state_dict.pt").exists() and len(bench.trash()) == 2
    assert (bench.run / "0" / "scheduler_state_dict.pt").read_bytes() == b"new"


def test_a_plan_works_once(bench: Bench) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    receipt = prune(engine, plan, "a key")
    assert prune(bench.engine(), plan, "a key") == receipt, "the same request from another console"
    engine.undo(receipt.id, "tester")
    assert receipt.id in refusal(prune, engine, plan, "another key").message
    assert (bench.run / "0").exists()


def test_a_plan_is_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    assert "fingerprint" in refusal(engine.prune, plan.id, "0" * 64, "", "tester", None).message
    with monkeypatch.context() as patch:
        patch.setattr(plans.procfs, "machine_id", lambda: "another")
        assert "another host" in refusal(prune, engine, plan).message
    with monkeypatch.context() as patch:
        patch.setattr(plans.procfs, "boot_id", lambda: "another")
        assert "started anew" in refusal(prune, engine, plan).message
    with monkeypatch.context() as patch:
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        patch.setattr("remote.disk.deletion.uptime", lambda: up + plans.PLAN_SECONDS + 1)
        assert "expired" in refusal(prune, engine, plan).message
    with monkeypatch.context() as patch:  # the wall clock says nothing about a plan
        patch.setattr("time.time", lambda: 0.0)
        bench.workspace.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", bench.workspace)
        assert "not the directory" in refusal(prune, engine, plan).message
        shutil.rmtree(bench.workspace)
        (tmp_path / "aside").rename(bench.workspace)
        assert prune(engine, plan).state == "trashed"


def test_two_consoles_at_the_same_moment(bench: Bench) -> None:
    plan = bench.engine().plan(["out/0"], LEVEL_WHOLE)
    code = (
        "import sys; from pathlib import Path; from agent.deletingkit import Bench\n"
        "from remote.disk.deletion import Deletion; from remote.policy import Policy\n"
        "engine = Deletion(Policy(False, '', (sys.argv[1],), sys.argv[1]))\n"
        "sys.stdin.readline()\n"
        "try: print(engine.prune(sys.argv[2], sys.argv[3], '', 'x', None).state)\n"
        "except Exception as error: print(error.code)\n"
    )
    argv = [sys.executable, "-c", code, str(bench.workspace), plan.id, plan.fingerprint]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    both = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0].strip() for process in both) == ["refused", "trashed"]
    assert len(bench.trash()) == 1


def test_nothing_is_deleted_without_a_journal(bench: Bench) -> None:
    class Mute(Syscalls):
        def fdatasync(self, descriptor: int) -> None:
            raise OSError(28, "No space left on device")

    engine = bench.engine(Mute())
    error = refusal(prune, engine, engine.plan(["out/0"], LEVEL_WHOLE))
    assert error.code == FAILED and (bench.run / "0").exists() and bench.trash() == []
    working = bench.engine()
    receipt = prune(working, working.plan(["out/0"], LEVEL_WHOLE))
    assert refusal(engine.undo, receipt.id, "x").code == FAILED and not (bench.run / "0").exists()
    assert refusal(engine.purge, receipt.id, "x").code == FAILED and len(bench.trash()) == 1


def test_a_purge_leaves_what_changed_in_the_trash(bench: Bench) -> None:
    engine = bench.engine()
    folder = os.open(bench.run / "0", os.O_RDONLY)  # a folder of somebody is no use of its files
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
    os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    [after] = engine.purge(receipt.id, "tester").receipts
    assert after.state == "trashed" and "has changed in the trash" in after.items[0].problem
    assert engine.undo(receipt.id, "tester").state == "restored" and (bench.run / "0" / "late").exists()


def test_receipts_expire_by_the_clock_that_does_not_jump(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine()
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
    wall, up = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr("remote.disk.deletion.time.time", lambda: wall + 90 * 86400)
    engine.housekeeping()
    assert engine.trash().receipts[0].id == receipt.id, "the wall clock jumped by three months"
    monkeypatch.setattr("remote.disk.deletion.uptime", lambda: up + receipts.KEPT_SECONDS + 1)
    engine.housekeeping()
    assert engine.trash().receipts == () and bench.trash() == []


def test_pins_protect_what_holds_them_too(bench: Bench) -> None:
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    engine.pin("out/0", True, "ann")
    assert "pinned since" in refusal(prune, engine, plan).message
    assert "pinned by ann" in refusal(engine.plan, ["out/0/config.json"], LEVEL_WHOLE).message
    assert "pinned by ann" in refusal(engine.plan, ["out"], LEVEL_WHOLE).message
    assert engine.plan(["out/0"], LEVEL_WHOLE, force=["pinned"]).items
    assert refusal(engine.plan, ["out/0"], LEVEL_WHOLE, ["in_use"]).code == REFUSED
    engine.pin("out/0", False, "ann")
    assert prune(engine, engine.plan(["out/0"], LEVEL_WHOLE)).state == "trashed"


def test_a_run_keeps_what_it_needs_at_the_moment_of_the_effect(bench: Bench) -> None:
    best = {"name": "1"}

    def artifact(directory: str, name: str) -> Artifact:
        size = Size(1, 1, 1, 1)
        return Artifact(f"{directory}/{name}", "checkpoint", size, Verdict("review"), modified=float(name))

    def read(directory: str) -> list[Checkpoint]:
        if directory != str(bench.run):
            return []
        names = sorted(os.listdir(directory), key=int)
        return [
            Checkpoint(
                name,
                Artifact(
                    f"{directory}/{name}", "checkpoint", Size(1, 1, 1, 1), Verdict("review"), modified=float(name)
                ),
                "full",
                epoch=int(name),
                resumable=True,
                servable=True,
                best=name == best["name"],
                newest=name == names[-1],
            )
            for name in names
        ]

    engine = bench.engine(checkpoints=read)
    assert "best" in refusal(engine.plan, ["out/1"], LEVEL_WHOLE).message
    assert "newest" in refusal(engine.plan, ["out/2"], LEVEL_WHOLE).message
    assert "resume" in refusal(engine.plan, ["out/2/optimizer_state_dict.pt"], LEVEL_WHOLE).message
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    best["name"] = "0"  # validation ended between the plan and its confirmation
    assert "best" in refusal(prune, engine, plan).message and (bench.run / "0").exists()
    assert engine.plan(["out"], LEVEL_WHOLE).items, "a whole run is a person's own decision"


def test_hostile_names(bench: Bench) -> None:
    names = ["new\nline", "\u202egnp.exe", "\x1b[2J", "\udcff\udcfe", " ", "-rf", "*", "a" * 255]
    for name in names:
        fill(bench.workspace / name, 10)
    deep = bench.workspace / "deep"
    deep.mkdir()
    folder = os.open(deep, os.O_RDONLY)
    for _ in range(40):  # a path of 10 kB cannot be opened by its name
        os.mkdir("d" * 255, dir_fd=folder)
        below = os.open("d" * 255, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    engine = bench.engine()
    leaf = "/".join(["deep", *["d" * 255] * 40, "leaf"])
    plan = engine.plan([*names, leaf], LEVEL_WHOLE)
    assert len(plan.items) == len(names) + 1
    receipt = prune(engine, plan)
    assert receipt.state == "trashed" and not any((bench.workspace / name).exists() for name in names)
    assert engine.undo(receipt.id, "tester").state == "restored"
    assert all((bench.workspace / name / "config.json").exists() for name in names)
    receipt = prune(engine, engine.plan(["deep"], LEVEL_WHOLE))
    assert engine.purge(receipt.id, "tester").receipts[0].state == "purged" and bench.trash() == []
    assert engine.journal(None, None).broken is None


def test_sparse_files_count_what_they_take(bench: Bench) -> None:
    with open(bench.run / "0" / "model.safetensors", "wb") as file:
        file.truncate(1 << 36)
    engine = bench.engine()
    plan = engine.plan(["out/0"], LEVEL_WHOLE)
    assert plan.exclusive < 1 << 20
    [purged] = engine.purge(prune(engine, plan).id, "tester").receipts
    assert purged.freed.unlinked == plan.exclusive


def test_a_large_tree_that_somebody_opens_in_between_comes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than are leased at once: who opens one after its test is seen after the rename."""
    monkeypatch.setattr(idleness, "HELD_FILES", 2)
    engine = bench.engine()
    plan = engine.plan(["out/0", "out/1"], LEVEL_WHOLE)
    opened = []

    class Opening(Syscalls):
        def rename(self, directory: int, name: str, target_directory: int, target: str) -> None:
            if not opened:
                opened.append(open(bench.run / "0" / "config.json", "rb"))  # noqa: SIM115
            super().rename(directory, name, target_directory, target)

    receipt = prune(bench.engine(Opening()), plan)
    assert [item.state for item in receipt.items] == ["refused", "trashed"]
    assert (bench.run / "0" / "config.json").exists() and len(bench.trash()) == 1
    opened[0].close()


def test_without_the_system_calls_it_refuses(bench: Bench) -> None:
    class Old(Syscalls):
        def open_beneath(self, directory: int, path: str, flags: int, mode: int = 0) -> int:
            raise Unsupported("openat2 cannot be used here")

    class NoRename(Syscalls):
        def rename(self, directory: int, name: str, target_directory: int, target: str) -> None:
            raise Unsupported("this file system cannot rename without replacing (renameat2)")

    before = inodes(bench.run)
    assert "openat2" in refusal(bench.engine(Old()).plan, ["out/0"], LEVEL_WHOLE).message
    engine = bench.engine(NoRename())
    assert "renameat2" in refusal(prune, engine, engine.plan(["out/0"], LEVEL_WHOLE)).message
    assert inodes(bench.run) == before


def test_the_journal_shows_a_line_that_was_changed(bench: Bench) -> None:
    engine = bench.engine()
    (bench.run / "train_command.txt").write_text("train --api-key sk-abcdefghijklmnopqrstuvwxyz")
    receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
    engine.undo(receipt.id, "ann")
    page = engine.journal(None, None)
    assert page.broken is None and [entry.action for entry in page.entries] == ["undo", "undo", "prune", "prune"]
    assert "sk-abc" not in str(page) and "train_command.txt" in str(page.entries[-1].facts)
    path = bench.workspace / ".eagle_console" / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq": 5, "cut by a cra')
    engine.pin("out/0", True, "ann")
    assert engine.journal(None, None).broken is None, "a line that a crash cut is no break"
    path.write_bytes(path.read_bytes().replace(b'"requested_by":"ann"', b'"requested_by":"bob"', 1))
    assert bench.engine().journal(None, None).broken == 3


def test_refusals_name_what_there_is(bench: Bench) -> None:
    engine = bench.engine()
    assert refusal(engine.undo, "r0", "x").code == NOT_FOUND
    assert refusal(engine.plan, [], LEVEL_WHOLE).message == "nothing is asked for"
    assert "no optimizer" in refusal(engine.plan, ["out/0/config.json"], LEVEL_TRIM).message
    assert refusal(engine.plan, ["out/nothing"], LEVEL_WHOLE).code == REFUSED


def test_over_the_wire(bench: Bench) -> None:
    fill(bench.workspace / "thing", names=("a", "b"))
    for path in [*(bench.workspace / "thing").iterdir(), bench.workspace / "thing"]:
        os.utime(path, (1e9, 1e9))
    with AgentProcess() as agent:
        agent.hello(bench.workspace)
        answer = agent.request("plan_prune", 1, paths=["thing"], level="whole", force=["unknown_layout"])
        plan = answer["ok"] or pytest.fail(str(answer))
        args = {"plan": plan["id"], "fingerprint": plan["fingerprint"], "typed": "", "requested_by": "ann"}
        receipt = agent.request("prune", 2, **args)["ok"]
        assert receipt["state"] == "trashed" and agent.request("trash", 3)["ok"]["receipts"][0]["id"] == receipt["id"]
        assert agent.request("prune", 4, **args)["error"]["code"] == REFUSED
        assert agent.request("undo", 5, receipt=receipt["id"])["ok"]["state"] == "restored"
        assert agent.request("plan_prune", 6, paths=[".."])["error"]["code"] == REFUSED
        assert agent.request("plan_prune", 7, paths=7)["error"]["code"] == "bad_argument"
        assert agent.request("journal", 8, limit=1)["ok"]["entries"][0]["action"] == "undo"
    with AgentProcess() as agent:
        agent.hello(bench.workspace, readonly=True)
        plan = agent.request("plan_prune", 1, paths=["thing"], force=["unknown_layout"])["ok"]
        args = {"plan": plan["id"], "fingerprint": plan["fingerprint"], "typed": "", "requested_by": "ann"}
        assert agent.request("prune", 2, **args)["error"]["code"] == REFUSED
        assert agent.request("pin", 3, path="thing")["error"]["code"] == REFUSED


@pytest.mark.system
@pytest.mark.parametrize("version", AGENT_VERSIONS)
def test_on_other_pythons(bench: Bench, version: str) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); sys.dont_write_bytecode = True\n"
        "from remote.disk.deletion import Deletion; from remote.policy import Policy\n"
        "d = Deletion(Policy(False, '', (sys.argv[1],), sys.argv[1]))\n"
        "p = d.plan(['out/0'], 'whole'); r = d.prune(p.id, p.fingerprint, '', 'x', 'k'); d.undo(r.id, 'x')\n"
        "p = d.plan(['out/0'], 'trim'); r = d.prune(p.id, p.fingerprint, '', 'x', None)\n"
        "print(d.purge(r.id, 'x').receipts[0].state, d.journal(None, None).broken)\n"
    )
    argv = [str(interpreter(version)), "-W", "error", "-I", "-c", code, str(bench.workspace), str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("purged None", "")
    assert sorted(os.listdir(bench.run / "0")) == ["config.json", "model.safetensors"]


def test_receipts_are_told_further_as_they_would_be_told_anew(bench: Bench) -> None:
    engine, ledger = bench.engine(), receipts.Ledger()
    for epoch in ("0", "1"):
        pruned = prune(engine, engine.plan([f"{bench.run}/{epoch}"], LEVEL_WHOLE))
        lines = engine.book.lines()
        assert ledger.standings(lines) == receipts.Ledger().standings(lines)
        engine.undo(pruned.id, "ann")
        lines = engine.book.lines()
        assert ledger.standings(lines) == receipts.Ledger().standings(lines)
    assert len(ledger.standings(lines)) == 2
    assert ledger.standings(lines[:-1]) == receipts.Ledger().standings(lines[:-1]), "a journal that lost its end"
    assert ledger.standings(bench.engine().book.lines()) == receipts.Ledger().standings(lines)
