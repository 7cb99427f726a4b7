"""What the host's kernel counts, whoever reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Counters:
    """CPU time of all cores together since boot (any unit, the same for both), memory in bytes, uptime in seconds."""

    cpu_busy: float
    cpu_total: float
    memory_total: int
    memory_available: int
    uptime: float


def cpu_percent(before: Optional[Counters], now: Counters) -> Optional[float]:
    """How busy all cores together were between two readings; None without a first one or without time between."""
    if before is None or now.cpu_total <= before.cpu_total:
        return None
    share = (now.cpu_busy - before.cpu_busy) / (now.cpu_total - before.cpu_total)
    return round(100 * min(max(share, 0.0), 1.0), 1)
