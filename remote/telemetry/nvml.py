"""What we ask NVML, through nvidia-ml-py, and what its errors mean.

Functions, structures and return codes: nvml.h of the CUDA toolkit. The binding is imported only when it is needed, so
that the agent starts on a host without it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from remote.protocol.gpu import DRIVER_ERROR, DRIVER_MISMATCH, DRIVER_NO_LIBRARY, DRIVER_NOT_LOADED, DRIVER_OK
from remote.telemetry.lanes import Probe

HANDLE = "nvmlDeviceGetHandleByIndex"
NAME = "nvmlDeviceGetName"
UUID = "nvmlDeviceGetUUID"
MEMORY = "nvmlDeviceGetMemoryInfo"
UTILIZATION = "nvmlDeviceGetUtilizationRates"
POWER = "nvmlDeviceGetPowerUsage"
POWER_LIMIT = "nvmlDeviceGetEnforcedPowerLimit"
TEMPERATURE = "nvmlDeviceGetTemperature"
SM_CLOCK = "nvmlDeviceGetClockInfo(SM)"
MEMORY_CLOCK = "nvmlDeviceGetClockInfo(MEM)"
COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"

_UNINITIALIZED = 1
_NOT_SUPPORTED = 3
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_LOST = (15, 16)  # GPU_IS_LOST, RESET_REQUIRED
_VERSION_MISMATCH = 18

_DRIVER_STATES = {
    _LIBRARY_NOT_FOUND: (
        DRIVER_NO_LIBRARY,
        "libnvidia-ml.so.1 is not on this host: it has no NVIDIA driver, or the container was started without it. "
        "Install the driver, or start the container with the NVIDIA runtime and the capabilities utility,compute.",
    ),
    _DRIVER_NOT_LOADED: (
        DRIVER_NOT_LOADED,
        "The NVIDIA kernel module is not loaded. Load it with `modprobe nvidia`; `dmesg` says why if it refuses.",
    ),
    _VERSION_MISMATCH: (
        DRIVER_MISMATCH,
        "The NVIDIA library and the loaded kernel module have different versions, as after a driver update. "
        "Reboot the host or reload the nvidia modules, then connect again.",
    ),
}


@dataclass(frozen=True)
class Memory:
    """Bytes. ``reserved`` is the driver's own share, None where the driver does not tell it apart from ``used``."""

    total: int
    used: int
    reserved: Optional[int]


@dataclass(frozen=True)
class DriverStatus:
    """The driver at one time. ``generation`` changes whenever handles taken before it are no longer good."""

    state: str
    message: str = ""
    count: int = 0
    generation: int = 0
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None


def error_code(error: Exception) -> Optional[int]:
    """The NVML return code that a binding error carries, None for any other exception."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


def means_lost(error: Exception) -> bool:
    """Whether the error says that the GPU fell off the bus or needs a reset."""
    return error_code(error) in _LOST


def means_unsupported(error: Exception) -> bool:
    """Whether this GPU or driver simply does not offer the call."""
    return error_code(error) in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND)


def driver_failure(call: str, error: Exception) -> DriverStatus:
    """The state of a driver whose ``call`` failed, with what to do about it."""
    code = error_code(error)
    if code in _DRIVER_STATES:
        state, message = _DRIVER_STATES[code]
        return DriverStatus(state, message)
    if isinstance(error, ImportError):
        return DriverStatus(DRIVER_ERROR, "The Python binding of NVML (nvidia-ml-py) is not beside the agent.")
    return DriverStatus(DRIVER_ERROR, f"{call}: {error}. `nvidia-smi` on the host should say the same.")


def cuda_version(number: int) -> str:
    """``13000`` is CUDA 13.0: NVML gives 1000 * major + 10 * minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def gpu_probes(nvml: Any, index: int) -> tuple[Probe, ...]:
    """The calls about one GPU, the handle first. ``nvml`` is the binding's module."""
    handle = Probe(HANDLE, lambda: nvml.nvmlDeviceGetHandleByIndex(index), once=True)

    def probe(name: str, call: Callable[[Any], Any], once: bool = False) -> Probe:
        return Probe(name, lambda: call(handle.value), once=once, needs=handle)

    return (
        handle,
        probe(MEMORY, lambda gpu: _memory(nvml, gpu)),
        probe(UTILIZATION, lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
        probe(POWER, lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
        probe(POWER_LIMIT, lambda gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000),
        probe(TEMPERATURE, lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        probe(SM_CLOCK, lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        probe(MEMORY_CLOCK, lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
        probe(COMPUTE, lambda gpu: _holders(nvml.nvmlDeviceGetComputeRunningProcesses(gpu))),
        probe(GRAPHICS, lambda gpu: _holders(nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu))),
        probe(NAME, nvml.nvmlDeviceGetName, once=True),
        probe(UUID, nvml.nvmlDeviceGetUUID, once=True),
    )


class Driver:
    """Brings NVML up, keeps watch over it and brings it up again. ``step`` may hang; everything else may not."""

    def __init__(self, retry: float) -> None:
        self.status: Optional[DriverStatus] = None
        self.nvml: Any = None
        self.call = "nvmlInit"
        self._retry = retry
        self._next_try = 0.0
        self._generation = 0

    def step(self) -> None:
        """Looks at the driver once: initialises it when it is down and its time has come, else counts the GPUs."""
        if self.status and self.status.state == DRIVER_OK:
            self._watch(self.status)
        elif time.monotonic() >= self._next_try:
            self.status = self._start()
            self._next_try = time.monotonic() + self._retry

    def _start(self) -> DriverStatus:
        self.call = "nvmlInit"
        try:
            self.nvml = importlib.import_module("pynvml")
            self.nvml.nvmlInit()
            self.call = "nvmlDeviceGetCount"
            count = int(self.nvml.nvmlDeviceGetCount())
        except Exception as error:
            return driver_failure(self.call, error)
        self._generation += 1
        return DriverStatus(
            DRIVER_OK,
            count=count,
            generation=self._generation,
            driver_version=self._optional("nvmlSystemGetDriverVersion"),
            cuda_version=self._optional("nvmlSystemGetCudaDriverVersion", cuda_version),
        )

    def _watch(self, status: DriverStatus) -> None:
        self.call = "nvmlDeviceGetCount"
        try:
            count = int(self.nvml.nvmlDeviceGetCount())
        except Exception as error:
            # Any other error is about a GPU; the calls about that GPU then say the same.
            if error_code(error) in (_UNINITIALIZED, _DRIVER_NOT_LOADED, _VERSION_MISMATCH):
                self._stop()
                self.status = driver_failure(self.call, error)
            return
        if count != status.count:
            self._generation += 1
            self.status = DriverStatus(
                DRIVER_OK, "", count, self._generation, status.driver_version, status.cuda_version
            )

    def _stop(self) -> None:
        try:
            self.nvml.nvmlShutdown()
        except Exception:  # the driver is gone already, so there is nothing left to shut down
            return

    def _optional(self, call: str, convert: Callable[[Any], str] = str) -> Optional[str]:
        self.call = call
        try:
            return convert(getattr(self.nvml, call)())
        except Exception:  # a version that cannot be read is unknown, no reason to refuse the GPUs
            return None


def _memory(nvml: Any, gpu: Any) -> Memory:
    try:
        second = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError_FunctionNotFound:
        first = nvml.nvmlDeviceGetMemoryInfo(gpu)
        return Memory(first.total, first.used, None)
    return Memory(second.total, second.used, second.reserved)


def _holders(processes: Any) -> tuple[tuple[int, Optional[int]], ...]:
    return tuple((process.pid, process.usedGpuMemory) for process in processes)
