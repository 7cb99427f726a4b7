"""What the telemetry costs: CPU and memory of a process that runs all samplers at 1 Hz with eight fake GPUs, and of
nvitop on the same GPUs beside it.

    python -m bench.telemetry [SECONDS]

nvitop is installed into a temporary environment, unless the command line finds one; without it its row is left out.
"""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.nvml import FakeNvml, build_library, gpus

SECONDS = 20.0
_WARM_UP_SECONDS = 4.0  # imports and the first look at everything are not the steady state
_NVITOP = "nvitop==1.7.2"
_ROOT = Path(__file__).parents[1]

_SAMPLER = """
import sys, time
from remote.disk.usage import UsageMonitor
from remote.protocol.codec import encode_line, to_wire
from remote.telemetry.gpu import GpuSampler
from remote.telemetry.host import HostSampler

gpus, host, disk = GpuSampler(), HostSampler(sys.argv[1]), UsageMonitor(sys.argv[1])
gpus.start()
disk.start()
while True:
    for record in (gpus.snapshot(), host.sample(), disk.snapshot()):
        encode_line({"record": to_wire(record)})
    time.sleep(1)
"""


@dataclass(frozen=True)
class Cost:
    """Of one process: percent of one core, resident and proportional memory in bytes."""

    name: str
    cpu_percent: float
    resident: int
    proportional: int


def run(seconds: float = SECONDS) -> list[Cost]:
    """Measures the samplers, then nvitop where it can be had; ``seconds`` each."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        workspace = _workspace(directory / "work")
        library = directory / "built"
        library.mkdir()
        fake = FakeNvml(directory, build_library(library)).install()
        fake.write(*gpus(), f"proc 0 {os.getpid()} 700", f"proc 1 {os.getpid()} 700")
        environment = {**os.environ, **fake.environment, "TERM": "xterm-256color"}
        costs = [
            _measure(
                "samplers, 8 GPUs at 1 Hz",
                [sys.executable, "-c", _SAMPLER, str(workspace)],
                {**environment, "PYTHONPATH": str(_ROOT)},
                seconds,
            )
        ]
        nvitop = shutil.which("nvitop") or _install_nvitop(directory / "nvitop")
        if nvitop:
            command = [nvitop, "--interval", "1", "--no-unicode"]
            costs.append(_measure("nvitop, 8 GPUs at 1 Hz", command, environment, seconds))
        return costs


def main() -> int:
    """Prints one line a process."""
    for cost in run(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS):
        sys.stdout.write(
            f"{cost.name:28}  {cost.cpu_percent:5.2f} % of a core  {cost.resident / 1e6:5.1f} MB resident  "
            f"{cost.proportional / 1e6:5.1f} MB proportional\n"
        )
    return 0


def _measure(name: str, command: Sequence[str], environment: dict[str, str], seconds: float) -> Cost:
    """Runs a command on a terminal of 120 by 34 for its warm-up and ``seconds``."""
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 120, 0, 0))
    process = subprocess.Popen(
        command, env=environment, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True
    )
    os.close(other_end)
    threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
    try:
        time.sleep(_WARM_UP_SECONDS)
        before, begin = _cpu_seconds(process.pid), time.monotonic()
        time.sleep(seconds)
        used, elapsed = _cpu_seconds(process.pid) - before, time.monotonic() - begin
        memory = _memory(process.pid)
        return Cost(name, 100 * used / elapsed, memory["Rss"], memory["Pss"])
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            continue
    except OSError:  # the other end is closed
        return


def _cpu_seconds(pid: int) -> float:
    """User and system time so far, of all threads. Fields 14 and 15 of /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def _workspace(path: Path) -> Path:
    """Ten epochs of small files, two of them large and sparse, as a training run leaves them."""
    for epoch in range(10):
        directory = path / "output_1k" / str(epoch)
        directory.mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "optimizer_state_dict.pt", "val_metrics.json"):
            (directory / name).write_bytes(b"{}")
        for name in ("model.safetensors", "optimizer_state_dict.pt"):
            os.truncate(directory / name, 2**30)
    return path


def _install_nvitop(directory: Path) -> str:
    """The path of nvitop in an environment of its own, or nothing."""
    steps = (
        [sys.executable, "-m", "venv", str(directory)],
        [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", _NVITOP],
    )
    for step in steps:
        if subprocess.run(step, capture_output=True, check=False).returncode:
            sys.stderr.write("nvitop could not be installed; its row is left out.\n")
            return ""
    return str(directory / "bin" / "nvitop")


if __name__ == "__main__":
    sys.exit(main())
