"""Freeing GPUs as the screen and the command line both see it: what is chosen, and whether it came off."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from remote.protocol import freeing
from remote.protocol.freeing import FreeReport, GpuHolder


def lifted(holder: GpuHolder, force: Collection[str]) -> bool:
    """Whether a holder may be ended: nothing protects it, or the name that protects it was given."""
    return not holder.refused or (bool(holder.force) and holder.force in force)


def succeeded(report: FreeReport, chosen: Sequence[GpuHolder]) -> bool:
    """Whether everything that was asked for ended, and its GPUs are free."""
    touched = {share.gpu for holder in chosen for share in holder.shares}
    ended = all(item.outcome in (freeing.ENDED, freeing.KILLED, freeing.GONE) for item in report.processes)
    return ended and not report.problem and all(gpu.free for gpu in report.gpus if gpu.index in touched)
