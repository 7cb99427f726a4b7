"""JSON of the holders of GPU memory and of their end; docs/json.md describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remote.protocol.freeing import FreeReport, GpuHolder, GpuHolders

Document = dict[str, Any]


def holders(found: GpuHolders, chosen: Sequence[int]) -> Document:
    """Who holds GPU memory.

    :param chosen: pids that would be ended.
    """
    return {
        "holders": [{**_holder(holder), "chosen": holder.pid in chosen} for holder in found.holders],
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "memory_used": gpu.used,
                "memory_total": gpu.total,
                "unexplained": gpu.unexplained or None,
            }
            for gpu in found.gpus
        ],
    }


def report(value: FreeReport) -> Document:
    """What became of processes and GPUs."""
    return {
        "processes": [
            {"pid": item.pid, "outcome": item.outcome, "command": item.command, "note": item.note or None}
            for item in value.processes
        ],
        "gpus": [
            {
                "index": gpu.index,
                "before": gpu.before,
                "after": gpu.after,
                "free": gpu.free,
                "explanation": gpu.explanation or None,
            }
            for gpu in value.gpus
        ],
        "seconds": value.seconds,
        "problem": value.problem or None,
    }


def _holder(holder: GpuHolder) -> Document:
    return {
        "pid": holder.pid,
        "user": holder.user,
        "command": holder.command or holder.name,
        "job": holder.job,
        "program": holder.program or None,
        "orphan": holder.orphan,
        "seconds": holder.seconds,
        "memory": holder.memory,
        "gpus": [{"gpu": share.gpu, "memory": share.memory} for share in holder.shares],
        "refused": holder.refused or None,
        "force": holder.force or None,
    }
