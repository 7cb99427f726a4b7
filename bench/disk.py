"""The scan of a large tree beside ``du -s``, the refresh of ten epochs, and what an agent with both in mind weighs."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fixtures import training_runs

from remote.disk.mounts import mount_points
from remote.disk.runs import Runs
from remote.disk.tree import TreeSizes

FLAT, SPREAD, FOLDERS = 60_000, 140_000, 1_400
ROUNDS = 5
EPOCHS = 10

_SURVEYOR = """
import sys, time
from remote.disk.survey import Survey
from remote.disk.usage import UsageMonitor
monitor = UsageMonitor(sys.argv[1])
monitor.start()
survey = Survey(sys.argv[1], dict, {"HOME": "/nonexistent"})
answer = survey.triage()
assert not answer.problem and monitor.wait(120)
for line in open("/proc/self/status"):
    if line.startswith(("VmHWM", "VmRSS")):
        print(line.split()[1])
"""


@dataclass(frozen=True)
class Disk:
    """CPU seconds of a scan, of ``du -s`` and of a refresh; bytes of memory at the most."""

    files: int
    scan: float
    du: float
    same: bool
    refresh: float
    checkpoints: float
    memory: int

    def __str__(self) -> str:
        return (
            f"scan of {self.files:,} files  {self.scan:.3f} s CPU  du -s {self.du:.3f} s  "
            f"ratio {self.scan / self.du:.2f}  {'same total' if self.same else 'OTHER TOTAL'}\n"
            f"  refresh of {EPOCHS} epochs  {self.refresh * 1000:.2f} ms CPU  reading their headers and metrics again "
            f"{self.checkpoints * 1000:.2f} ms\n"
            f"  an agent that has scanned and triaged it  {self.memory / 1e6:.1f} MB at the most"
        )


def run() -> Disk:
    """All of it, on a tree of its own."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tree(root / "tree")
        scans, dus, same = [], [], True
        for _ in range(ROUNDS):
            du, total = _du(root / "tree")
            scan, allocated = _scan(root)
            scans.append(scan)
            dus.append(du)
            same = same and allocated == total
        refresh, checkpoints = _refresh(root)
        return Disk(FLAT + SPREAD, min(scans), min(dus), same, refresh, checkpoints, _memory(root))


def tree(root: Path) -> None:
    """A flat folder like hidden states, and many small ones."""
    flat = root / "hidden_states"
    flat.mkdir(parents=True)
    old = training_runs.LONG_AGO
    for number in range(FLAT):
        (flat / f"hs_{number}.safetensors").touch()
        os.utime(flat / f"hs_{number}.safetensors", (old, old))
    for folder in range(FOLDERS):
        inner = root / f"group{folder % 20}" / str(folder)
        inner.mkdir(parents=True)
        for number in range(SPREAD // FOLDERS):
            (inner / f"{number}.json").write_bytes(b"{}")
            os.utime(inner / f"{number}.json", (old, old))


def _du(path: Path) -> tuple[float, int]:
    """CPU seconds of a ``du -s`` and its total less the blocks of directories."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    folders = sum(os.stat(folder).st_blocks * 512 for folder, _, _ in os.walk(path))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, int(answer.stdout.split()[0]) - folders


def _scan(root: Path) -> tuple[float, int]:
    sizes = TreeSizes(lambda files: None)
    mounts = mount_points()
    descriptor = os.open(root, os.O_RDONLY)
    try:
        begin = time.thread_time()
        sizes.begin_pass(full=True)
        totals = sizes.measure(descriptor, "tree", str(root / "tree"), mounts)
        return time.thread_time() - begin, totals.allocated if totals else 0
    finally:
        os.close(descriptor)


def _refresh(root: Path) -> tuple[float, float]:
    """CPU seconds of looking at ten epochs again: at their sizes, and at all that the checkpoints table shows."""
    training_runs.run(root / "run", [1.0] * EPOCHS, 0, weight_bytes=2_970_000_000, optimizer_bytes=5_930_000_000)
    sizes = TreeSizes(lambda files: None, lambda: time.time() + 3600)
    runs = Runs()
    descriptor = os.open(root, os.O_RDONLY)
    refreshes, readings = [], []
    try:
        for _ in range(50):
            begin = time.thread_time()
            sizes.begin_pass(full=False)
            sizes.measure(descriptor, "run", str(root / "run"), frozenset())
            sizes.end_pass()
            refreshes.append(time.thread_time() - begin)
            begin = time.thread_time()
            runs.read(str(root / "run"))
            readings.append(time.thread_time() - begin)
    finally:
        os.close(descriptor)
    return statistics.median(refreshes), statistics.median(readings)


def _memory(root: Path) -> int:
    """The most memory that a process takes which has both scanned and triaged the tree."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    answer = subprocess.run(
        [sys.executable, "-c", _SURVEYOR, root], capture_output=True, text=True, check=True, env=environment
    )
    return max(int(word) for word in answer.stdout.split()) * 1024


if __name__ == "__main__":
    sys.stdout.write(f"{run()}\n")
