"""From what the calls about a GPU answered to its record: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Optional

from remote.protocol.gpu import GPU_ERROR, GPU_LOST, GPU_OK, GPU_SILENT, Gpu, GpuProblem, GpuProcess
from remote.telemetry import nvml
from remote.telemetry.lanes import HANG_AFTER, Outcome, Probe
from remote.telemetry.processes import Holder, ProcessName, merge_holders, process_row

_LASTING = (nvml.HANDLE, nvml.NAME, nvml.UUID)  # asked once, good for ever


@dataclass(frozen=True)
class Reading:
    """A probe at one time: the last outcome, the last good one, and for how long a call has been running."""

    call: str
    outcome: Optional[Outcome] = None
    good: Optional[Outcome] = None
    in_flight: float = 0.0


def take(probe: Probe, now: float) -> Reading:
    """The reading of a probe. Times are the monotonic clock's seconds."""
    return Reading(probe.name, probe.outcome, probe.good, probe.in_flight(now))


def gpu_record(
    index: int,
    readings: Iterable[Reading],
    now: float,
    seen: float,
    keep: float,
    name_of: Callable[[int], Optional[ProcessName]],
) -> Gpu:
    """The record of one GPU.

    :param seen: when the GPU was first seen; its ``mono`` until its memory has been read.
    :param keep: a value older than this many seconds is unknown. The memory stays for a silent GPU: ``mono`` says
        how old it is.
    """
    by_call = {reading.call: reading for reading in readings}

    def value(call: str) -> Any:
        outcome = by_call[call].outcome
        return outcome.value if outcome and (call in _LASTING or now - outcome.mono <= keep) else None

    memory = by_call[nvml.MEMORY]
    state = _state(by_call, now, keep)
    held = value(nvml.MEMORY)
    if state == GPU_SILENT and memory.good:
        held = memory.good.value
    return Gpu(
        index=index,
        state=state,
        mono=_memory_time(memory, seen),
        uuid=_last_good(by_call[nvml.UUID]),
        name=_last_good(by_call[nvml.NAME]),
        memory_used=held.used if held else None,
        memory_reserved=held.reserved if held else None,
        memory_total=held.total if held else None,
        utilization=value(nvml.UTILIZATION),
        power=value(nvml.POWER),
        power_limit=value(nvml.POWER_LIMIT),
        temperature=value(nvml.TEMPERATURE),
        sm_clock=value(nvml.SM_CLOCK),
        memory_clock=value(nvml.MEMORY_CLOCK),
        processes=_processes(value(nvml.COMPUTE), value(nvml.GRAPHICS), name_of),
        problems=tuple(problem for problem in map(_problem, by_call.values()) if problem),
    )


def _state(by_call: dict[str, Reading], now: float, keep: float) -> str:
    errors = {call: reading.outcome.error for call, reading in by_call.items() if reading.outcome}
    if any(error and nvml.means_lost(error) for error in errors.values()):
        return GPU_LOST
    memory = by_call[nvml.MEMORY]
    if memory.outcome is None or now - memory.outcome.mono > keep:
        return GPU_SILENT if any(reading.in_flight > HANG_AFTER for reading in by_call.values()) else GPU_ERROR
    failed = errors.get(nvml.HANDLE) or errors.get(nvml.MEMORY)
    return GPU_ERROR if failed and not nvml.means_unsupported(failed) else GPU_OK


def _memory_time(memory: Reading, seen: float) -> float:
    """When the memory was last read; an answer of "not supported" is as fresh as a reading."""
    outcome = memory.outcome
    if outcome and outcome.error and nvml.means_unsupported(outcome.error):
        return outcome.mono
    return memory.good.mono if memory.good else seen


def _problem(reading: Reading) -> Optional[GpuProblem]:
    if reading.in_flight > HANG_AFTER:
        return GpuProblem(reading.call, f"hanging for {reading.in_flight:.0f} s")
    outcome = reading.outcome
    if outcome and outcome.error:
        return GpuProblem(reading.call, str(outcome.error))
    if outcome and outcome.seconds > HANG_AFTER and reading.call not in _LASTING:
        return GpuProblem(reading.call, f"slow: its last answer took {outcome.seconds:.1f} s")
    return None


def _processes(
    compute: Optional[tuple[Holder, ...]],
    graphics: Optional[tuple[Holder, ...]],
    name_of: Callable[[int], Optional[ProcessName]],
) -> Optional[tuple[GpuProcess, ...]]:
    """None unless the compute processes are known; what draws on the GPU is an addition to them."""
    if compute is None:
        return None
    return tuple(process_row(pid, memory, name_of(pid)) for pid, memory in merge_holders(compute, graphics or ()))


def _last_good(reading: Reading) -> Any:
    return reading.good.value if reading.good else None
