"""Freeing a real GPU: real CUDA processes, one of them an orphan, ended through the agent's own operations.

    PYTHONPATH=. python3 -m bench.free_gpu [--gib N] [--out FOLDER]

The interpreter must have torch and nvidia-ml-py. Prints what the agent sees before, what became of each process, and
what nvidia-smi says before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remote.capabilities import Capabilities
from remote.policy import load
from remote.protocol.codec import to_wire

_HOLD = """
import sys, time, torch
held = torch.empty(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holds", flush=True)
time.sleep(600)
"""

_ORPHAN = """
import subprocess, sys
words = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
child = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
"""

_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _HOLD

ALL_SECONDS = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.free_gpu")
    parser.add_argument("--gib", type=float, default=8.0, help="that each process holds")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = str(options.gib)
    plain = subprocess.Popen([sys.executable, "-c", _HOLD, size], stdout=subprocess.PIPE, start_new_session=True)
    stubborn = subprocess.Popen([sys.executable, "-c", _STUBBORN, size], stdout=subprocess.PIPE, start_new_session=True)
    for process in (plain, stubborn):
        assert process.stdout is not None
        process.stdout.readline()
    made = subprocess.run([sys.executable, "-c", _ORPHAN, _HOLD, size], stdout=subprocess.PIPE, text=True, check=True)
    orphan = int(made.stdout)
    pids = {"plain": plain.pid, "deaf to SIGTERM": stubborn.pid, "orphan": orphan}
    with tempfile.TemporaryDirectory() as workspace:
        result = _freed(Capabilities(load(workspace, readonly=False)), pids)
    for process in (plain, stubborn):
        result[f"exit status of {process.pid}"] = process.wait(10)
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if options.out:
        (options.out / "free_gpu.json").write_text(text + "\n")
    return 0


def _freed(host: Capabilities, pids: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {"pids": pids, "nvidia-smi before": _smi()}
    freeing = host.operations
    time.sleep(2.0)
    began = time.monotonic()
    found = freeing["gpu_holders"]({}, None)
    result["seconds to list"] = round(time.monotonic() - began, 3)
    result["holders"] = to_wire(found)
    targets = [{"pid": holder.pid, "start_ticks": holder.process.start_ticks} for holder in found.holders]
    report = freeing["free_gpus"]({"targets": targets, "requested_by": "bench"}, None)
    deadline = time.monotonic() + ALL_SECONDS
    while report.running and time.monotonic() < deadline:
        time.sleep(0.1)
        report = freeing["free_report"]({"id": report.id}, None)
    result["report"] = to_wire(report)
    result["nvidia-smi after"] = _smi()
    result["journal"] = [entry.text for entry in host.deletion().journal(None, None).entries]
    result["alive"] = {name: os.path.exists(f"/proc/{pid}/fd/0") for name, pid in pids.items()}
    return result


def _smi() -> str:
    query = ["nvidia-smi", "--query-gpu=index,memory.used,memory.reserved", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
