"""The agent on a real GPU: what it says beside what nvidia-smi says, and what it costs. Standard library only.

    PYTHONPATH=. python3 -m bench.agent_gpu [SECONDS]

pynvml and psutil must be importable. A child process holds 4 GiB of the first GPU through the CUDA driver's own
interface, so that there is a holder of memory to find.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 30.0
HOLD_BYTES = 4 << 30

_HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
               cuda.cuCtxSetCurrent(context), cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(%d))):
    assert status == 0, status
print("held", flush=True)
sys.stdin.read()
"""

_QUERY = "index,memory.used,memory.reserved,memory.total,utilization.gpu,power.draw,temperature.gpu,clocks.sm"


class Conversation:
    """The agent as a child process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "remote.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.say({"t": "hello", "protocol": [1], "client": "bench"})
        self.hello = self.hear()

    def say(self, frame: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        frame: dict[str, Any] = json.loads(self.process.stdout.readline())
        return frame


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER % HOLD_BYTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    held = holder.stdout.readline().strip() or "no CUDA memory could be held"
    agent = Conversation()
    for number, topic in enumerate(("gpus", "host", "disk", "jobs"), start=1):
        agent.say({"t": "sub", "sub": number, "topic": topic})
    first, before, events, latest = time.monotonic(), 0.0, 0, {}
    deadline = first + seconds
    while time.monotonic() < deadline:
        frame = agent.hear()
        if frame["t"] == "ev":
            events += 1
            latest[frame["topic"]] = frame["data"]
        if not before and time.monotonic() - first > 3:
            before, first = _cpu(agent.process.pid), time.monotonic()
            agent.say({"t": "ping", "n": 1})
    used = 100 * (_cpu(agent.process.pid) - before) / (time.monotonic() - first)
    memory = _memory(agent.process.pid)
    out = sys.stdout.write
    out(f"holder: {held}, pid {holder.pid}\n")
    out(f"agent: {used:.2f} % of a core, {events} events in {seconds:.0f} s\n")
    for name, kind in (("resident", "Rss"), ("proportional", "Pss"), ("anonymous", "Anonymous")):
        out(f"  {memory[kind] / 1e6:.1f} MB {name}\n")
    out(json.dumps(latest.get("gpus"), indent=1) + "\n")
    for words in (["--query-gpu=" + _QUERY, "--format=csv"], ["--query-compute-apps=pid,used_memory", "--format=csv"]):
        found = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False)
        out(found.stdout or found.stderr)
    holder.communicate("")
    agent.process.communicate()
    return 0


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


if __name__ == "__main__":
    sys.exit(main())
