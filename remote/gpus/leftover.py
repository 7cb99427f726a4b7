"""Why memory of a GPU stays in use although no process that can be ended holds it: a pure function of readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remote.protocol.freeing import GpuHolder
from remote.protocol.gpu import GPU_LOST, GPU_OK, Gpu


@dataclass(frozen=True)
class Evidence:
    """What was found on the host.

    :param mps: pids of MPS servers, which hold memory for their clients.
    :param xids: GPU errors among the kernel's messages.
    """

    mps: Sequence[int] = ()
    xids: Sequence[str] = ()


def explain(gpu: Gpu, holders: Sequence[GpuHolder], evidence: Evidence) -> str:
    """What holds the memory of a GPU, in words; empty where it is free or where processes that can be ended hold it."""
    if gpu.state == GPU_LOST:
        return "the driver has lost this GPU: it needs a reset or a reboot"
    if gpu.state != GPU_OK or gpu.memory_used is None:
        return "its memory cannot be read"
    if gpu.memory_used == 0:
        return ""
    here = [holder for holder in holders if any(share.gpu == gpu.index for share in holder.shares)]
    hidden = [holder.pid for holder in here if holder.process is None]
    if hidden:
        return f"NVML names {_pids(hidden)}, which cannot be seen here: end it in its own container or on its host"
    if here:
        return ""
    if evidence.mps:
        return f"an MPS server runs ({_pids(evidence.mps)}) and holds memory for its clients: end it with its control"
    if evidence.xids:
        return f"the kernel reports {', '.join(evidence.xids[:3])}: this GPU may need a reset"
    return (
        "no process is named for it: another container may hold it, or the driver still clears up; "
        "if it stays, root can reset the GPU once nothing uses it"
    )


def _pids(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids[:5]))}"
