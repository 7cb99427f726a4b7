"""Words for jobs: their states, how they ended, how to stop them. Shared by the strip, the tables and the panels."""

from __future__ import annotations

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.text import clean
from eagle_console.tui.widgets.prose import prose
from pipeline.plan.catalog import stage_named
from remote.protocol import jobs
from remote.protocol.adopted import is_adopted
from remote.protocol.jobs import Job

_STYLES = {
    jobs.STARTING: "$text-primary",
    jobs.RUNNING: "$text-primary",
    jobs.READY: "$text-success",
    jobs.STOPPING: "$text-warning",
    jobs.DONE: "$text-success",
    jobs.STOPPED: "$foreground-muted",
    jobs.FAILED: "$text-error",
    jobs.GONE: "$text-error",
    jobs.UNSUPERVISED: "$text-warning",
    jobs.ELSEWHERE: "$foreground-muted",
}


def state_word(job: Job) -> str:
    """The state in capitals for a live job, in small letters for an ended one; a foreign one names its host."""
    word = clean(job.state, 20)
    if job.state == jobs.ELSEWHERE:
        return f"on {clean(job.host, 30)}"
    return word.upper() if job.state in (*jobs.LIVE_STATES, jobs.FAILED, jobs.GONE) else word


def state_style(job: Job) -> str:
    bold = "bold " if job.state in (*jobs.LIVE_STATES, jobs.FAILED, jobs.GONE) else ""
    return bold + _STYLES.get(job.state, "")


def state_content(job: Job) -> Content:
    return Content.styled(state_word(job), state_style(job))


def why_lines(job: Job, width: int) -> list[Content]:
    """What there is to say about a job beside its row: its note, and why it failed with what to do."""
    lines = prose(clean(f"{job.id}: {job.note}"), width, "$text-warning") if job.note else []
    if job.failure is not None:
        lines += prose(clean(f"{job.id}: {job.failure.cause}"), width, "$text-error")
        lines += prose(clean(job.failure.remedy), width, "$foreground-muted")
    return lines


def exit_text(job: Job) -> str:
    """How the main process ended: ``exit 1``, ``signal 9``, or a dash while that is not known."""
    if job.signal is not None:
        return f"signal {job.signal}"
    return fmt.UNKNOWN if job.code is None else f"exit {job.code}"


def progress_text(job: Job) -> str:
    """How far a job is, or how far one came that ended early; nothing of one that is done."""
    if job.state == jobs.DONE:
        return ""
    progress = job.progress
    done = f"{fmt.percent(progress.percent)} " if progress.percent is not None and not progress.ready else ""
    return f"{done}{clean(progress.phase, 40)}"


def address(job: Job) -> str:
    """The server's address without the path of its health check."""
    return clean(job.health_url or "", 100).removesuffix("/health")


def loading_seconds(job: Job, seconds: float | None) -> float | None:
    """How long the load took: up to the start of its last phase, the readiness, once it has it; else all its time.

    None for a server that was ready before anybody watched it.
    """
    if not job.progress.ready:
        return seconds
    if job.progress.phases:
        return job.progress.phases[-1].start
    return None if is_adopted(job.id) else seconds


def lost_by_stopping(job: Job, seconds: float | None) -> str:
    """What is lost when a job is stopped, in words that follow "Stopping loses "."""
    try:
        costs = stage_named(job.stage).stop_costs
    except KeyError:
        costs = ""
    time = fmt.duration_in_words(loading_seconds(job, seconds))
    doing = "loading" if job.kind == jobs.KIND_SERVICE else "work"
    return f"{time} of {doing}" + (f": {costs}" if costs else "")
