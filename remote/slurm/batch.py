"""What is submitted: the batch script and the options of ``sbatch``. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Optional

from remote.protocol.cluster import SlurmOptions
from remote.slurm.queue import comment

LIMIT_SIGNAL = "USR2"
"""Sent to the runner when the time limit is near; ``remote.jobs.wakeup.LIMIT``."""

_LEAST_WARNING = 120
_MARGIN_SECONDS = 60

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def script(prologue: Sequence[str], command: Sequence[str]) -> str:
    """The batch script. The runner takes the shell's place, so that a signal to the batch script reaches the runner.

    The prologue is shell text of the user's own profile and goes in as it is.
    """
    return "\n".join(["#!/bin/bash", *prologue, f"exec {shlex.join(command)}", ""])


def options(job_id: str, log: str, asked: SlurmOptions, gpus: bool, grace_seconds: float) -> list[str]:
    """The options of ``sbatch`` for a job.

    :param log: absolute path for what the batch script itself says.
    :param gpus: the stage uses GPUs.
    :param grace_seconds: what the stage may take to end itself; it is warned of the time limit so early.
    """
    given = {
        "partition": asked.partition,
        "account": asked.account,
        "time": asked.time,
        "gres": f"gpu:{asked.gpus_per_node}" if gpus and asked.gpus_per_node else None,
        "cpus-per-task": asked.cpus_per_task,
        "mem": asked.memory,
    }
    warning = warning_seconds(asked.time, grace_seconds)
    return [
        "--parsable",
        f"--job-name=eagle-{job_id.partition('-')[0]}",
        f"--comment={comment(job_id)}",
        f"--output={log.replace('%', '%%')}",
        "--open-mode=append",
        "--chdir=/",
        f"--nodes={asked.nodes}",
        "--ntasks-per-node=1",
        "--requeue" if asked.requeue else "--no-requeue",
        f"--signal=B:{LIMIT_SIGNAL}@{warning}",
        *(f"--{name}={value}" for name, value in given.items() if value is not None),
        *asked.options,
    ]


def warning_seconds(time: Optional[str], grace_seconds: float) -> int:
    """How long before the limit the runner is told: twice the grace of the stage, but at most half the time there is.

    Slurm looks at limits twice a minute, so a minute is added.
    """
    wanted = max(_LEAST_WARNING, int(2 * grace_seconds) + _MARGIN_SECONDS)
    limit = seconds(time) if time else None
    return wanted if limit is None else max(1, min(wanted, limit // 2))


def seconds(time: str) -> Optional[int]:
    """A time limit in seconds, None for ``UNLIMITED`` and what is no time.

    Slurm's forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
    days-hours:minutes:seconds (``man sbatch``, ``--time``).
    """
    match = _TIME.fullmatch(time)
    if match is None:
        return None
    parts = [int(match[name] or 0) for name in ("first", "second", "third")]
    if match["days"] is not None:
        return int(match["days"]) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    if match["third"] is not None:
        return parts[0] * 3600 + parts[1] * 60 + parts[2]
    return parts[0] * 60 + parts[1]
