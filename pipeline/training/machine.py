"""What training can use on this machine, without importing torch: GPUs, cores, shared memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Optional

from pipeline.plan.environment import Environment
from pipeline.plan.training import Machine

_GPUS = Path("/proc/driver/nvidia/gpus")
_SHARED_MEMORY = "/dev/shm"  # where loader processes leave their batches
_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


def find(environment: Environment, limit: Optional[int]) -> Machine:
    """The machine as training may use it.

    :param limit: GPUs at most; None for all.
    """
    gpus = 0 if environment.cpu_only else _gpus()
    return Machine(
        gpus=gpus if limit is None else min(gpus, limit),
        cores=len(os.sched_getaffinity(0)),
        gpu_memory=_gpu_memory() if gpus else None,
        shared_memory=shutil.disk_usage(_SHARED_MEMORY).free if os.path.isdir(_SHARED_MEMORY) else None,
    )


def variables(environment: Environment) -> dict[str, str]:
    """What the trainer's process needs in its environment beyond what the stage has."""
    ours = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    if environment.cpu_only:
        # The trainer's loaders lower the number for themselves; without one the trainer would too.
        ours["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        # Threads that spin while they wait keep each other from shared cores: a step of 0.25 s then took 2 s.
        ours["OMP_WAIT_POLICY"] = "PASSIVE"
    return ours


def _gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        count = len(list(_GPUS.iterdir()))
    except OSError:
        return 0
    return count if visible is None else min(count, len([word for word in visible.split(",") if word.strip()]))


def _gpu_memory() -> Optional[int]:
    """Bytes of the smallest GPU; None where nvidia-smi does not say."""
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=20, check=True)
        return min(int(line) for line in answer.stdout.split()) * 1024**2
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
