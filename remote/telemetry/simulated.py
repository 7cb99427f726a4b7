"""Eight simulated GPUs for the embedded host where there is no driver. Always marked: ``simulated`` is True.

Everything is a function of the time and of how long the live servers have been running: the same question always gets
the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from remote.protocol.gpu import DRIVER_OK, GPU_OK, Gpu, GpuSnapshot
from remote.telemetry.processes import ProcessName, process_row


@dataclass(frozen=True)
class Server:
    """A live server that the simulated GPUs work for: its main process, the seconds that it has been running, and the
    name of that process."""

    pid: int
    seconds: float
    name: Optional[ProcessName] = None


Servers = Callable[[], Sequence[Server]]
"""Answers with the live servers."""

_COUNT = 8
_GIB = 2**30
_TOTAL = 96 * _GIB
_RESERVED = 640 * 2**20
_WEIGHTS = 68 * _GIB
_KV_CACHE = 18 * _GIB
_LOAD_SECONDS = 60.0
_WARM_UP_SECONDS = 20.0
_POWER_LIMIT = 600.0


def simulated_snapshot(mono: float, servers: Sequence[Server]) -> GpuSnapshot:
    """The eight GPUs at one time; idle and empty unless a server has been running."""
    oldest = max(servers, key=lambda server: server.seconds, default=None)
    return GpuSnapshot(
        driver=DRIVER_OK,
        gpus=tuple(_gpu(index, mono, oldest) for index in range(_COUNT)),
        message="Simulated: this host has no NVIDIA driver.",
        simulated=True,
    )


def _gpu(index: int, mono: float, server: Optional[Server]) -> Gpu:
    seconds = server.seconds if server else 0.0
    memory = _memory(seconds)
    busy = seconds > _LOAD_SECONDS + _WARM_UP_SECONDS
    wave = math.sin(mono / 7 + index) if busy else 0.0
    utilization = round(82 + 12 * wave) if busy else 0
    return Gpu(
        index=index,
        state=GPU_OK,
        mono=mono,
        uuid=f"GPU-51000000-0000-0000-0000-{index:012d}",
        name="Simulated GPU 96 GB",
        memory_used=memory,
        memory_reserved=_RESERVED,
        memory_total=_TOTAL,
        utilization=utilization,
        power=round(72 + index + utilization * 4.2, 1),
        power_limit=_POWER_LIMIT,
        temperature=34 + index % 3 + utilization * 2 // 5,
        sm_clock=2300 if busy else 210,
        memory_clock=12481 if busy else 405,
        processes=(process_row(server.pid, memory, server.name),) if server else (),
    )


def _memory(seconds: float) -> int:
    """Nothing, then the weights as they arrive, then the KV cache at one stroke."""
    loaded = min(max(seconds, 0.0) / _LOAD_SECONDS, 1.0)
    cache = _KV_CACHE if seconds > _LOAD_SECONDS + _WARM_UP_SECONDS else 0
    return int(_WEIGHTS * loaded) + cache
