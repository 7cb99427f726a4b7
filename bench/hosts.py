"""The things that are measured on: eight fake GPUs, a workspace of checkpoints, and the peer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fixtures.nvml import FakeNvml, build_library, gpus

_NVITOP = "nvitop==1.7.2"


def fake_gpus(directory: Path) -> FakeNvml:
    """Eight GPUs with two holders of memory, read through the real NVML binding."""
    library = directory / "built"
    library.mkdir()
    fake = FakeNvml(directory, build_library(library)).install()
    return fake.write(*gpus(), f"proc 0 {os.getpid()} 700", f"proc 1 {os.getpid()} 700")


def workspace(path: Path) -> Path:
    """Ten epochs of small files, two of them large and sparse, as a training run leaves them."""
    for epoch in range(10):
        directory = path / "output_1k" / str(epoch)
        directory.mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "optimizer_state_dict.pt", "val_metrics.json"):
            (directory / name).write_bytes(b"{}")
        for name in ("model.safetensors", "optimizer_state_dict.pt"):
            os.truncate(directory / name, 2**30)
    return path


def nvitop(directory: Path) -> str:
    """The path of nvitop: the one on the path, else one in an environment of its own, else nothing."""
    found = shutil.which("nvitop")
    if found:
        return found
    steps = (
        [sys.executable, "-m", "venv", str(directory)],
        [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", _NVITOP],
    )
    for step in steps:
        if subprocess.run(step, capture_output=True, check=False).returncode:
            sys.stderr.write("nvitop could not be installed; its row is left out.\n")
            return ""
    return str(directory / "bin" / "nvitop")
