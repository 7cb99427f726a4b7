"""What is worth a note while nobody looks: a load that is ready, a run that ends or fails. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eagle_console import format as fmt
from eagle_console.text import clean
from remote.protocol import jobs
from remote.protocol.jobs import Job

_ESC, _BEL = "\x1b", "\x07"


@dataclass(frozen=True)
class Notice:
    """One sentence for people, clean, and whether it is bad news."""

    text: str
    bad: bool = False


def news(before: Mapping[str, str], now: Sequence[Job], host: str) -> list[Notice]:
    """What has happened since the jobs were last seen.

    A job that was never seen alive is no news, and neither is one that a person stopped.

    :param before: the states that were last seen, by job.
    """
    found = []
    for job in now:
        if before.get(job.id) in jobs.LIVE_STATES and job.state != before[job.id]:
            notice = _notice(job, clean(host, 40))
            if notice is not None:
                found.append(notice)
    return found


def states(now: Sequence[Job]) -> dict[str, str]:
    """What ``news`` compares with the next time."""
    return {job.id: job.state for job in now}


def osc9(text: str, tmux: bool) -> str:
    """The sequence that asks a terminal for a desktop notification; tmux passes it on where it is allowed to
    (``allow-passthrough on``)."""
    inner = f"{_ESC}]9;{clean(text, 200)}{_BEL}"
    doubled = inner.replace(_ESC, _ESC * 2)
    return f"{_ESC}Ptmux;{doubled}{_ESC}\\" if tmux else inner


def _notice(job: Job, host: str) -> Notice | None:
    name, after = clean(job.stage, 40), f" after {fmt.duration(job.seconds)}" if job.seconds is not None else ""
    if job.state == jobs.READY:
        return Notice(f"{name} on {host} is ready{after}.")
    if job.state == jobs.DONE:
        return Notice(f"{name} on {host} is done{after}.")
    if job.state == jobs.FAILED:
        why = f": {clean(job.failure.cause, 160)}" if job.failure is not None else ""
        return Notice(f"{name} on {host} failed{after}{why}".rstrip(".") + ".", bad=True)
    if job.state in (jobs.GONE, jobs.UNSUPERVISED):
        return Notice(
            f"{name} on {host} is {job.state}: {clean(job.note, 160) or 'nobody knows why'}".rstrip(".") + ".", bad=True
        )
    return None
