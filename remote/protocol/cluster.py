"""Slurm as the engine of a host: what a profile says about it, and what its queue says about a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class SlurmOptions:
    """How jobs are submitted, as ``sbatch`` takes it; None and empty leave it to the cluster's defaults.

    :param time: the limit, in any of Slurm's forms (``90``, ``12:00:00``, ``2-0``).
    :param gpus_per_node: asked for by stages that use GPUs, none by the others.
    :param memory: of a node (``200G``; ``0`` is all of it).
    :param requeue: a job whose node dies is queued again and goes on from what is finished.
    :param options: more options of ``sbatch``, each of the form ``--name=value``.
    :param prologue: shell lines that run on the node before the stage (``module load cuda``).
    """

    partition: Optional[str] = None
    account: Optional[str] = None
    time: Optional[str] = None
    nodes: int = 1
    gpus_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    memory: Optional[str] = None
    requeue: bool = False
    options: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allocation:
    """What Slurm last said about a job.

    :param id: Slurm's number of the job, empty while it is not known.
    :param state: Slurm's own word (``PENDING``, ``RUNNING``, ``NODE_FAIL``), empty where Slurm does not know the job.
    :param reason: why it waits or has ended, as Slurm writes it.
    :param nodes: Slurm's expression (``n[1-2]``).
    :param start: the start, or the expected one of a job that waits, as Slurm writes it; empty where it says none.
    :param left: time until the limit, as Slurm writes it.
    """

    id: str = ""
    state: str = ""
    reason: str = ""
    nodes: str = ""
    start: str = ""
    left: str = ""
