"""CPU time, memory and uptime out of /proc, for hosts where psutil cannot be imported. Formats: proc(5)."""

from __future__ import annotations

from pathlib import Path

from remote.telemetry.counters import Counters


def parse_cpu(text: str) -> tuple[float, float]:
    """Busy and total CPU time of all cores from ``/proc/stat``, in clock ticks. Waiting for a disk is not busy, and
    the time of guests is already part of the user time.

    :raises ValueError: when there is no ``cpu`` line.
    """
    for line in text.splitlines():
        name, *fields = line.split()
        if name == "cpu":
            times = [float(field) for field in fields[:8]]
            idle = sum(times[3:5])
            return sum(times) - idle, sum(times)
    raise ValueError("no cpu line in /proc/stat")


def parse_memory(text: str) -> tuple[int, int]:
    """Total and available memory from ``/proc/meminfo``, in bytes.

    :raises ValueError: when a line is missing (kernels before 3.14 do not estimate what is available).
    """
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            sizes[name] = int(rest.split()[0]) * 1024
    if len(sizes) < 2:
        raise ValueError("MemTotal or MemAvailable is missing in /proc/meminfo")
    return sizes["MemTotal"], sizes["MemAvailable"]


def parse_uptime(text: str) -> float:
    """Seconds since boot from ``/proc/uptime``.

    :raises ValueError: when the text is not two numbers.
    """
    return float(text.split(None, 1)[0])


def read(root: Path = Path("/proc")) -> Counters:
    """The counters of this host.

    :raises OSError: when a file cannot be read.
    :raises ValueError: when it is not as described above.
    """
    busy, total = parse_cpu((root / "stat").read_text())
    memory_total, memory_available = parse_memory((root / "meminfo").read_text())
    return Counters(busy, total, memory_total, memory_available, parse_uptime((root / "uptime").read_text()))
