"""Who holds GPU memory: one entry a process, over all GPUs that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eagle_console import format as fmt
from eagle_console.text import clean
from remote.protocol.gpu import GpuProcess, GpuSnapshot


@dataclass(frozen=True)
class Holder:
    """A process and the GPUs whose memory it holds. ``memory`` is the sum in bytes, None where NVML does not say."""

    pid: int
    gpus: tuple[int, ...]
    memory: int | None
    process: GpuProcess

    @property
    def name(self) -> str:
        """The process's name. Without one the process is outside our container: the pid is the host's then."""
        return clean(self.process.name, 40) if self.process.name else "(outside this container)"

    @property
    def gpu_text(self) -> str:
        return ranges(self.gpus)

    @property
    def memory_text(self) -> str:
        return fmt.gib(self.memory)


def holders(snapshot: GpuSnapshot) -> list[Holder]:
    """All processes that hold memory, the largest first; those of unknown size last."""
    found: dict[int, list[tuple[int, GpuProcess]]] = {}
    for gpu in snapshot.gpus:
        for process in gpu.processes or ():
            found.setdefault(process.pid, []).append((gpu.index, process))
    result = []
    for pid, entries in found.items():
        sizes = [process.memory for _, process in entries if process.memory is not None]
        gpus = tuple(sorted({index for index, _ in entries}))
        result.append(Holder(pid, gpus, sum(sizes) if sizes else None, entries[0][1]))
    return sorted(result, key=lambda holder: (holder.memory is None, -(holder.memory or 0), holder.pid))


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: ``0-3,6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
