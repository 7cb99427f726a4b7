"""The queue as ``squeue`` prints it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from remote.protocol.cluster import Allocation

FORMAT = "%i|%T|%N|%S|%L|%k|%r"
"""Number, state, nodes, start, time left, comment, reason: the reason last, since it is free text."""

_COMMENT = "eagle:"
_NOTHING = ("", "N/A", "(null)", "None", "INVALID", "NOT_SET")


@dataclass(frozen=True)
class Queue:
    """One look at the queue.

    :param jobs: by the id of our job, as its comment carries it.
    :param problem: why Slurm did not answer; nothing is known then, least of all that a job has ended.
    """

    jobs: Mapping[str, Allocation]
    problem: str = ""


def comment(job_id: str) -> str:
    """The comment that a Slurm job carries, by which it is found after a lost reply."""
    return f"{_COMMENT}{job_id}"


def parse(text: str) -> Mapping[str, Allocation]:
    """The jobs of ours in an answer of ``squeue -h -o FORMAT``; other lines are passed over.

    Of a job that stands there twice (submitted again by hand) the one that has not ended counts, else the last.
    """
    jobs: dict[str, Allocation] = {}
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) != 7 or not fields[5].startswith(_COMMENT):
            continue
        number, state, nodes, start, left, name, reason = (field.strip() for field in fields)
        found = Allocation(number, state, _said(reason), _said(nodes), _said(start), _said(left))
        key = name[len(_COMMENT) :]
        if key not in jobs or waits(found) or runs(found) or not (waits(jobs[key]) or runs(jobs[key])):
            jobs[key] = found
    return jobs


def waits(allocation: Allocation) -> bool:
    """Whether it has no node yet, or none any more and will get one again."""
    return allocation.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")


def runs(allocation: Allocation) -> bool:
    """Whether it holds its nodes."""
    return allocation.state in (
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "STAGE_OUT",
    )


def words(allocation: Optional[Allocation]) -> str:
    """What Slurm says about a job, in its own words: state, reason, expected start or nodes."""
    if allocation is None or not allocation.state:
        return ""
    parts = [f"Slurm {allocation.id}: {allocation.state}"]
    if allocation.reason:
        parts.append(f"({allocation.reason})")
    if waits(allocation) and allocation.start:
        parts.append(f"expected to start {allocation.start.replace('T', ' ')}")
    elif allocation.nodes:
        parts.append(f"on {allocation.nodes}")
    if runs(allocation) and allocation.left:
        parts.append(f"{allocation.left} left")
    return " ".join(parts)


def _said(field: str) -> str:
    return "" if field in _NOTHING else field
