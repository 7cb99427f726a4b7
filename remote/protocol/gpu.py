"""GPU readings (topic ``gpus``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

GPU_OK = "ok"
GPU_LOST = "lost"  # NVML says that the GPU fell off the bus or needs a reset
GPU_ERROR = "error"  # no handle or no memory reading, for the reason in ``problems``
GPU_SILENT = "silent"  # a call is hanging and nothing fresh has come since

DRIVER_OK = "ok"
DRIVER_NO_LIBRARY = "no_library"  # libnvidia-ml.so.1 is not there
DRIVER_NOT_LOADED = "not_loaded"
DRIVER_MISMATCH = "mismatch"  # library and kernel module differ; the host needs a reboot or module reload
DRIVER_ERROR = "error"


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU. ``memory`` is None where NVML does not say (containers, MIG)."""

    pid: int
    memory: Optional[int] = None
    name: Optional[str] = None
    user: Optional[str] = None
    command: Optional[str] = None
    job: Optional[str] = None


@dataclass(frozen=True)
class GpuProblem:
    """One NVML call that gave no value: its name and NVML's words, or how long it has been hanging."""

    call: str
    message: str


@dataclass(frozen=True)
class Gpu:
    """One GPU at one time.

    Memory in bytes as ``nvmlDeviceGetMemoryInfo_v2`` gives it: ``memory_used`` leaves out ``memory_reserved``, the
    driver's own share, so an idle GPU shows 0. Utilisation in percent, power in watts, temperature in degrees Celsius,
    clocks in MHz. A field that NVML does not support, or whose call failed, is None.
    """

    index: int
    state: str
    mono: float
    uuid: Optional[str] = None
    name: Optional[str] = None
    memory_used: Optional[int] = None
    memory_reserved: Optional[int] = None
    memory_total: Optional[int] = None
    utilization: Optional[int] = None
    power: Optional[float] = None
    power_limit: Optional[float] = None
    temperature: Optional[int] = None
    sm_clock: Optional[int] = None
    memory_clock: Optional[int] = None
    processes: Optional[tuple[GpuProcess, ...]] = None
    problems: tuple[GpuProblem, ...] = ()


@dataclass(frozen=True)
class GpuSnapshot:
    """All GPUs of the host. ``driver`` is one of the DRIVER states; ``message`` says what is wrong in words."""

    driver: str
    gpus: tuple[Gpu, ...] = ()
    message: str = ""
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    simulated: bool = False
