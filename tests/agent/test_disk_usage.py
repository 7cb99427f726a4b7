"""Disk usage of real trees, against GNU du."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remote.disk.mounts import parse_mount_points
from remote.disk.tree import HOT_BYTES, TreeSizes, TreeTotals
from remote.disk.usage import UsageMonitor, describe_problem, fit_frame, wire_text
from remote.protocol.codec import encode_line, to_wire
from remote.protocol.disk import ArtifactUsage, DiskSnapshot

NOBODY = 65534
LATER = 3600.0  # seen from an hour on, every file is cold and every directory settled


def measure(
    sizes: TreeSizes, parent: Path, name: str, full: bool = False, mounts: frozenset[str] = frozenset()
) -> TreeTotals:
    directory = os.open(parent, os.O_RDONLY)
    try:
        sizes.begin_pass(full)
        totals = sizes.measure(directory, name, str(parent / name), mounts)
        sizes.end_pass()
    finally:
        os.close(directory)
    assert totals is not None
    return totals


def du(parent: Path, name: str, user: int | None = None) -> int:
    """What du says, less the directories' own blocks."""
    answer = subprocess.run(
        ["du", "-s", "-B1", name], cwd=parent, user=user, capture_output=True, text=True, check=False
    )
    directories = [os.stat(parent / name).st_blocks]
    for _, children, _, directory in os.fwalk(parent / name):
        for child in children:
            status = os.stat(child, dir_fd=directory, follow_symlinks=False)
            directories.append(status.st_blocks if not os.path.islink(f"/proc/self/fd/{directory}/{child}") else 0)
    return int(answer.stdout.split()[0]) - 512 * sum(directories)


def grow(root: Path, chance: random.Random) -> None:
    """A random tree: files, holes, empty files, links of both kinds, deep directories, odd names."""
    directories, files = [root], []
    root.mkdir()
    for number in range(chance.randint(20, 60)):
        parent = chance.choice(directories)
        path = parent / (f"{number}" + chance.choice(["", " blank", "\nline", "-ü", os.fsdecode(b"\xff")]))
        kind = chance.choice(["directory", "file", "file", "file", "hole", "empty", "hard", "soft"])
        if kind == "directory":
            path.mkdir()
            directories.append(path)
        elif kind == "hard" and files:
            os.link(chance.choice(files), path)
        elif kind == "soft":
            path.symlink_to(chance.choice(["/", "..", "nowhere", "x" * 200]))
        else:
            with open(path, "wb") as file:
                if kind == "hole":
                    file.seek(chance.randint(1, 2**30))
                    file.write(b"end")
                elif kind != "empty":
                    file.write(b"x" * chance.choice([1, 100, 4096, 5000, 100_000]))
            files.append(path)


@pytest.fixture
def sizes() -> TreeSizes:
    return TreeSizes(lambda files: None)


@pytest.fixture
def late_sizes() -> TreeSizes:
    return TreeSizes(lambda files: None, lambda: time.time() + LATER)


@pytest.mark.parametrize("seed", range(12))
def test_what_du_says(tmp_path: Path, sizes: TreeSizes, late_sizes: TreeSizes, seed: int) -> None:
    grow(tmp_path / "tree", random.Random(seed))
    truth = du(tmp_path, "tree")
    assert measure(sizes, tmp_path, "tree").allocated == truth
    assert measure(sizes, tmp_path, "tree").allocated == truth
    assert measure(late_sizes, tmp_path, "tree").allocated == truth
    assert measure(late_sizes, tmp_path, "tree").allocated == truth, "out of the memory of the pass before"


@pytest.mark.parametrize("seed", range(6))
def test_refreshes_stay_with_du_while_the_tree_changes(tmp_path: Path, sizes: TreeSizes, seed: int) -> None:
    chance = random.Random(seed)
    root = tmp_path / "tree"
    grow(root, chance)
    measure(sizes, tmp_path, "tree", full=True)
    for number in range(8):
        directories = [Path(path) for path, _, _ in os.walk(root)]
        files = [path / name for path in directories for name in os.listdir(path) if (path / name).is_file()]
        change = chance.choice(["create", "remove", "append", "rename", "graft", "prune", "link"])
        place = chance.choice(directories)
        if change == "create":
            (place / f"new-{number}").write_bytes(b"n" * 9000)
        elif change == "graft":
            grow(place / f"graft-{number}", chance)
        elif change == "prune" and place != root:
            shutil.rmtree(place)
        elif files and change == "remove":
            chance.choice(files).unlink()
        elif files and change == "append":
            with open(chance.choice(files), "ab") as file:
                file.write(b"a" * 70_000)
        elif files and change == "rename":
            os.rename(chance.choice(files), place / f"moved-{number}")
        elif files and change == "link":
            os.link(chance.choice(files), place / f"linked-{number}")
        totals = measure(sizes, tmp_path, "tree", full=sizes.wants_full)
        if sizes.wants_full:
            totals = measure(sizes, tmp_path, "tree", full=True)
        assert totals.allocated == du(tmp_path, "tree"), change


def test_a_refresh_lists_only_directories_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    sizes = TreeSizes(seen.append, lambda: time.time() + LATER)
    for number in range(3):
        (tmp_path / "tree" / f"epoch{number}").mkdir(parents=True)
        for name in ("model", "optimizer", "config"):
            (tmp_path / "tree" / f"epoch{number}" / name).write_bytes(b"x" * 5000)
    assert measure(sizes, tmp_path, "tree").files == 9
    listed: list[int] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda directory: listed.append(directory) or scandir(directory))
    assert measure(sizes, tmp_path, "tree").files == 9
    assert listed == []
    (tmp_path / "tree" / "epoch1" / "new").write_bytes(b"x")
    assert measure(sizes, tmp_path, "tree").files == 10
    assert len(listed) == 1


def test_a_large_file_that_grows_is_noticed_and_a_small_cold_one_at_the_full_pass(
    tmp_path: Path, late_sizes: TreeSizes
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").touch()
    os.truncate(tree / "large", HOT_BYTES)
    (tree / "small").write_bytes(b"x" * 4096)
    before = measure(late_sizes, tmp_path, "tree").allocated
    with open(tree / "large", "r+b") as file:
        file.write(b"y" * 65536)
        os.fsync(file.fileno())
    grown = measure(late_sizes, tmp_path, "tree").allocated
    assert grown >= before + 65536
    with open(tree / "small", "ab") as file:
        file.write(b"z" * 65536)
    assert measure(late_sizes, tmp_path, "tree").allocated == grown
    assert measure(late_sizes, tmp_path, "tree", full=True).allocated == du(tmp_path, "tree")


def test_a_cold_file_that_gets_a_second_name_asks_for_a_full_pass(tmp_path: Path, late_sizes: TreeSizes) -> None:
    (tmp_path / "tree" / "export").mkdir(parents=True)
    (tmp_path / "tree" / "model").write_bytes(b"x" * 8192)
    measure(late_sizes, tmp_path, "tree", full=True)
    assert not late_sizes.wants_full
    os.link(tmp_path / "tree" / "model", tmp_path / "tree" / "export" / "model")
    measure(late_sizes, tmp_path, "tree")
    assert late_sizes.wants_full


@pytest.fixture
def as_nobody() -> Iterator[Callable[[], None]]:
    """Root reads everything, so a test of what cannot be read gives up being root."""
    yield lambda: os.seteuid(NOBODY) if os.geteuid() == 0 else None
    os.seteuid(os.getuid())


def test_directories_that_cannot_be_read_are_counted(
    tmp_path: Path, sizes: TreeSizes, as_nobody: Callable[[], None]
) -> None:
    tree = tmp_path / "tree"
    (tree / "closed" / "below").mkdir(parents=True)
    (tree / "closed" / "file").write_bytes(b"x" * 9000)
    (tree / "names only").mkdir()
    (tree / "names only" / "file").write_bytes(b"x" * 9000)
    (tree / "open").write_bytes(b"x" * 9000)
    (tree / "closed").chmod(0o000)
    (tree / "names only").chmod(0o444)
    tmp_path.chmod(0o755)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        as_nobody()
        sizes.begin_pass(full=True)
        totals = sizes.measure(directory, "tree", str(tree), frozenset())
    finally:
        os.seteuid(os.getuid())
        os.close(directory)
        for name in ("closed", "names only"):
            (tree / name).chmod(0o755)
    assert totals is not None
    assert (totals.files, totals.apparent) == (1, 9000)
    assert totals.incomplete == 2


def test_neither_links_nor_mounts_are_entered(tmp_path: Path, sizes: TreeSizes) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"x" * 50_000)
    (tmp_path / "tree" / "mounted").mkdir(parents=True)
    (tmp_path / "tree" / "mounted" / "file").write_bytes(b"x" * 50_000)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    totals = measure(sizes, tmp_path, "tree", mounts=frozenset({str(tmp_path / "tree" / "mounted")}))
    assert (totals.files, totals.allocated) == (1, os.lstat(tmp_path / "tree" / "link").st_blocks * 512)


MOUNTED = """
import subprocess, sys
from remote.disk.usage import UsageMonitor
workspace = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "none", workspace + "/run/inner"], check=True)
subprocess.run(["mount", "--bind", workspace + "/other", workspace + "/bound"], check=True)
open(workspace + "/run/inner/file", "wb").write(b"x" * 70000)
monitor = UsageMonitor(workspace)
monitor.start()
assert monitor.wait(10)
print({entry.name: entry.apparent for entry in monitor.snapshot().entries})
"""


@pytest.mark.system
def test_real_mounts_are_not_crossed(tmp_path: Path) -> None:
    for name in ("run/inner", "other", "bound"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "other" / "file").write_bytes(b"x" * 3000)
    (tmp_path / "run" / "file").write_bytes(b"x" * 2000)
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us make mount namespaces")
    answer = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", MOUNTED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "{'other': 3000, 'run': 2000}"


@pytest.fixture
def monitor() -> Iterator[Callable[..., UsageMonitor]]:
    monitors = []

    def begin(workspace: str | None, refresh: float = 0.05) -> UsageMonitor:
        monitors.append(UsageMonitor(workspace, refresh))
        monitors[-1].start()
        assert monitors[-1].wait(10)
        return monitors[-1]

    yield begin
    for started in monitors:
        started.close()


def until(monitor: UsageMonitor, holds: Callable[[DiskSnapshot], bool]) -> DiskSnapshot:
    deadline = time.monotonic() + 10
    while not holds(monitor.snapshot()):
        assert time.monotonic() < deadline, monitor.snapshot()
        time.sleep(0.01)
    return monitor.snapshot()


def test_artifact_directories_largest_first(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    sizes = {"data_1k": 20_000, "output_1k": 90_000, ".cache": 5000, ".eagle_console": 400_000, ".eagle_trash": 400_000}
    for name, size in sizes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to(tmp_path / "output_1k")
    snapshot = monitor(str(tmp_path)).snapshot()
    assert [(entry.name, entry.apparent, entry.files) for entry in snapshot.entries] == [
        ("output_1k", 90_000, 1),
        ("data_1k", 20_000, 1),
        (".cache", 5000, 1),
    ]
    assert [(entry.name, entry.apparent) for entry in snapshot.own] == [
        (".eagle_console", 400_000),
        (".eagle_trash", 400_000),
    ]
    assert snapshot.entries[0].path == str(tmp_path / "output_1k")
    assert snapshot.entries[0].modified == pytest.approx(time.time(), abs=60)
    assert snapshot.filesystem and snapshot.filesystem.total > 0
    assert snapshot.scanned and not snapshot.problem


def test_loose_files_have_one_entry(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.log").write_bytes(b"x" * 3000)
    (tmp_path / "b.log").write_bytes(b"x" * 4000)
    entries = monitor(str(tmp_path)).snapshot().entries
    assert [(entry.name, entry.files, entry.apparent) for entry in entries] == [(".", 2, 7000), ("empty", 0, 0)]


def test_changes_appear(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    running = monitor(str(tmp_path))
    assert running.snapshot().entries == ()
    (tmp_path / "output").mkdir()
    until(running, lambda snapshot: len(snapshot.entries) == 1)
    (tmp_path / "output" / "file").write_bytes(b"x" * 8192)
    until(running, lambda snapshot: snapshot.entries[0].apparent == 8192)
    shutil.rmtree(tmp_path / "output")
    until(running, lambda snapshot: snapshot.entries == ())


def test_a_workspace_that_is_not_there_then_is(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    workspace = tmp_path / "work"
    running = monitor(str(workspace))
    snapshot = running.snapshot()
    assert "does not exist" in snapshot.problem and "Create it" in snapshot.problem
    assert snapshot.scanned is None and snapshot.filesystem is None
    (workspace / "output").mkdir(parents=True)
    assert until(running, lambda snapshot: not snapshot.problem).entries[0].name == "output"


def test_a_workspace_that_is_a_file(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    (tmp_path / "work").write_text("")
    assert "is not a directory" in monitor(str(tmp_path / "work")).snapshot().problem


def test_no_workspace(monitor: Callable[..., UsageMonitor]) -> None:
    assert "No workspace is set" in monitor(None).snapshot().problem


def test_a_workspace_that_may_not_be_read() -> None:
    problem = describe_problem("/data/x", PermissionError(13, "Permission denied"))
    assert "cannot be read" in problem and "Grant read access" in problem


def test_hostile_names_reach_the_wire(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/bad-\xff\xfe\nline\x1b[31m")
    snapshot = monitor(str(tmp_path)).snapshot()
    assert snapshot.entries[0].name == "bad-\\xff\\xfe\nline\x1b[31m"
    assert b"\\\\xff" in encode_line({"record": to_wire(snapshot)})


def test_names_that_are_fine_stay_as_they_are() -> None:
    assert wire_text("Ausgabe-ü-数据") == "Ausgabe-ü-数据"


def test_a_crowd_of_directories_fits_into_a_frame() -> None:
    entries = [ArtifactUsage(f"/data/{'x' * 100}{n}", f"{'x' * 100}{n}", n, n, 1) for n in range(5000)]
    shown, left_out = fit_frame(entries, 192 * 1024)
    assert shown[0].allocated == 4999 and left_out == 5000 - len(shown) > 0
    encode_line({"record": to_wire(DiskSnapshot("/data", shown, left_out=left_out))})


def test_mount_points_with_blanks() -> None:
    data = (
        b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 35 0:31 / /mnt/a\\040b\\134c rw,relatime shared:1 - tmpfs none rw\n"
    )
    assert parse_mount_points(data) == {"/", "/mnt/a b\\c"}


def test_closing_ends_a_pass_in_its_middle(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"d{number % 3}").mkdir(exist_ok=True)
        (tmp_path / f"d{number % 3}" / str(number)).touch()
    running = UsageMonitor(str(tmp_path))
    running.start()
    running.close()
    assert "disk-usage" not in {thread.name for thread in threading.enumerate()}


def crowd(workspace: Path, files: int = 6000) -> None:
    for number in range(files):
        (workspace / f"d{number % 3}").mkdir(exist_ok=True)
        (workspace / f"d{number % 3}" / str(number)).touch()


def test_a_scan_is_cancelled_and_what_was_known_stays(tmp_path: Path, monitor: Callable[..., UsageMonitor]) -> None:
    crowd(tmp_path)
    running = monitor(str(tmp_path))
    before = until(running, lambda snapshot: not snapshot.scanning)
    assert before.scanned and sum(entry.files for entry in before.entries) == 6000
    (tmp_path / "d0" / "another").write_bytes(b"x")
    running.rescan()
    until(running, lambda snapshot: snapshot.scanning and snapshot.files_expected == 6000)
    running.cancel()
    after = until(running, lambda snapshot: not snapshot.scanning)
    assert after.entries == before.entries and after.scanned == before.scanned and not after.problem
    running.rescan()
    until(running, lambda snapshot: sum(entry.files for entry in snapshot.entries) == 6001)


def test_a_cancelled_first_scan_says_so(tmp_path: Path) -> None:
    crowd(tmp_path)
    running = UsageMonitor(str(tmp_path))
    try:
        running.cancel()  # scanning from the beginning on; the pass clears this, so ask until it holds
        running.start()
        deadline = time.monotonic() + 10
        while not running.snapshot().problem:
            running.cancel()
            assert time.monotonic() < deadline
        assert "cancelled" in running.snapshot().problem and running.snapshot().scanned is None
        assert running.wait(1), "who waits for the first pass is told"
    finally:
        running.close()


def test_exclusive_bytes_leave_out_what_is_linked_elsewhere(
    tmp_path: Path, monitor: Callable[..., UsageMonitor]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "own").write_bytes(b"x" * 8192)
    (tmp_path / "a" / "twice").write_bytes(b"x" * 4096)
    os.link(tmp_path / "a" / "twice", tmp_path / "a" / "again")
    (tmp_path / "a" / "shared").write_bytes(b"x" * 12288)
    os.link(tmp_path / "a" / "shared", tmp_path / "b" / "shared")
    entries = {entry.name: entry for entry in monitor(str(tmp_path)).snapshot().entries}
    assert entries["a"].allocated == 8192 + 4096 + 12288 and entries["a"].exclusive == 8192 + 4096
    assert entries["b"].exclusive == 0
