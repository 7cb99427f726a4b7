"""What planning, pruning and undoing eight checkpoints takes, and how long somebody who opens a file then waits."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from remote.disk.deletion import Deletion
from remote.policy import Policy
from remote.protocol.artifacts import LEVEL_WHOLE
from remote.protocol.errors import RequestError

ROUNDS = 10
CHECKPOINTS, FILES = 8, 7

_OPENER = """
import os, sys, time
print("ready", flush=True)
worst, end = 0.0, time.monotonic() + 3
while time.monotonic() < end:
    begin = time.monotonic()
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY))
    except FileNotFoundError:
        pass
    worst = max(worst, time.monotonic() - begin)
    time.sleep(0.0005)
print(worst)
"""


def run() -> Iterator[str]:
    """Lines with the figures, measured on the file system of the temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "ws"
        for number in range(CHECKPOINTS):
            checkpoint = workspace / "run" / str(number)
            checkpoint.mkdir(parents=True)
            for file in range(FILES):
                (checkpoint / f"file{file}").write_bytes(os.urandom(100_000))
        engine = Deletion(Policy(False, "", (str(workspace),), str(workspace)))
        paths = [f"run/{number}" for number in range(CHECKPOINTS)]
        times: dict[str, list[float]] = {"plan": [], "prune": [], "undo": []}
        for _ in range(ROUNDS):
            marks = [time.monotonic()]
            plan = engine.plan(paths, LEVEL_WHOLE)
            marks.append(time.monotonic())
            receipt = engine.prune(plan.id, plan.fingerprint, "", "bench", None)
            marks.append(time.monotonic())
            engine.undo(receipt.id, "bench")
            marks.append(time.monotonic())
            for name, begin, end in zip(times, marks, marks[1:]):
                times[name].append(end - begin)
        for name, seconds in times.items():
            yield f"{name:8} median {statistics.median(seconds) * 1e3:6.1f} ms  worst {max(seconds) * 1e3:6.1f} ms"
        yield f"an opener waits at most {_longest_wait(engine, workspace) * 1e3:.1f} ms"


def _longest_wait(engine: Deletion, workspace: Path) -> float:
    command = [sys.executable, "-c", _OPENER, str(workspace / "run" / "0" / "file0")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdout and opener.stdout.readline()
        while opener.poll() is None:
            try:
                plan = engine.plan(["run/0"], LEVEL_WHOLE)
                engine.undo(engine.prune(plan.id, plan.fingerprint, "", "bench", None).id, "bench")
            except RequestError:
                continue  # the opener had the file at that moment
        return float(opener.stdout.read())
