"""One host in a few lines: its link, its GPUs, what runs, and its disk."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.adopted import NOT_OURS
from eagle_console.state import LinkState, Timed
from eagle_console.text import clean, shorten
from eagle_console.tui import job_words
from eagle_console.tui.view import View
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.status_bar import link_mark
from remote.protocol.adopted import is_adopted
from remote.protocol.gpu import DRIVER_OK, GpuSnapshot
from remote.protocol.host import Filesystem
from remote.protocol.jobs import LIVE_STATES, Job

_LABEL = 5


class HostTile(Panel):
    """A host of the fleet. What it shows dims with its own link, whatever the others do."""

    def __init__(self, name: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.host = name
        self.in_front = False

    def heading(self, view: View) -> str:
        return f"{'* ' if self.in_front else ''}{view.state.name}"

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.gpus or view.state.host or view.state.jobs

    def body(self, view: View, width: int, height: int) -> list[Content]:
        lines = [Content.assemble(link_mark(view), (f"  {clean(view.profile.address, 100)}", "$foreground-muted"))]
        if view.state.link.state is not LinkState.LIVE:
            lines += trouble_lines(view)
        lines += gpu_lines(view, width)
        lines += disk_lines(view, width)
        lines += job_lines(view)
        return [line.truncate(width, ellipsis=True) for line in lines]


def trouble_lines(view: View) -> list[Content]:
    """Why the link is not up, and what a person can do."""
    link = view.state.link
    if link.state is LinkState.IDLE:
        return [Content.styled("not connected yet", "$foreground-muted")]
    if link.state in (LinkState.ASKING, LinkState.UNKNOWN_HOST_KEY):
        return [Content.styled("enter answers its question", "bold $text-warning")]
    return [Content.styled(clean(link.detail, 300), "$text-warning")] if link.detail else []


def gpu_lines(view: View, width: int) -> list[Content]:
    """All memory together and the mean utilisation; a driver that fails in its words."""
    if view.state.gpus is None:
        return []
    snapshot = view.state.gpus.value
    if snapshot.driver != DRIVER_OK or not snapshot.gpus:
        return [_labelled("GPUs", Content.styled(clean(snapshot.message, 200) or "none", "$foreground-muted"))]
    used, total = memory(snapshot)
    known = [gpu.utilization for gpu in snapshot.gpus if gpu.utilization is not None]
    busy = fmt.percent(sum(known) / len(known)) if known else fmt.UNKNOWN
    sick = sum(1 for gpu in snapshot.gpus if gpu.state != "ok")
    numbers = f" {fmt.gib_of(used, total)} {busy}"
    share = used / total if used is not None and total else None
    bar = meter(share, max(0, width - _LABEL - len(numbers)), "$primary", view.ascii)
    lines = [_labelled(f"{len(snapshot.gpus)}x", Content.assemble(bar, numbers))]
    if sick:
        lines.append(Content.styled(f"     {fmt.plural(sick, 'GPU')} not well", "bold $text-error"))
    return lines


def memory(snapshot: GpuSnapshot) -> tuple[int | None, int | None]:
    """Used and total bytes of all GPUs; None where one of them does not say it."""
    used = [gpu.memory_used for gpu in snapshot.gpus]
    total = [gpu.memory_total for gpu in snapshot.gpus]
    return (
        None if None in used else sum(value for value in used if value is not None),
        None if None in total else sum(value for value in total if value is not None),
    )


def disk_lines(view: View, width: int) -> list[Content]:
    """How full the workspace's file system is."""
    filesystem = workspace_of(view)
    if filesystem is None:
        return []
    whole = filesystem.used + filesystem.free
    numbers = f" {fmt.gb(filesystem.free)} free"
    bar = meter(
        filesystem.used / whole if whole else None, max(0, width - _LABEL - len(numbers)), "$secondary", view.ascii
    )
    return [_labelled("disk", Content.assemble(bar, numbers))]


def workspace_of(view: View) -> Filesystem | None:
    found = view.state.disk.value.filesystem if view.state.disk else None
    return found or (view.state.host.value.workspace if view.state.host else None)


def job_lines(view: View) -> list[Content]:
    """What runs, ours and not ours; else that nothing does, and how the last job ended."""
    if view.state.jobs is None:
        return []
    adopted = [job for job in view.state.adopted_jobs() if job.state in LIVE_STATES]
    live = [*view.state.live_jobs(), *adopted]
    if live:
        return [_job_line(view, job) for job in live]
    last = next(iter(view.state.jobs.value.jobs), None)
    words = Content.styled("no job runs", "$foreground-muted")
    if last is None:
        return [words]
    return [Content.assemble(words, f"; last {clean(last.stage, 24)} ", job_words.state_content(last))]


def _job_line(view: View, job: Job) -> Content:
    progress = job.progress
    if progress.eta is not None and not progress.ready:
        left = f"{fmt.duration(progress.eta.low)}-{fmt.duration(progress.eta.high)} left"
        words = f"{fmt.percent(progress.percent)} {left}" if progress.percent is not None else left
    else:
        words = f"{job_words.progress_text(job)}  {fmt.duration(view.seconds(job))}".strip()
    whose = f"  {NOT_OURS}" if is_adopted(job.id) else ""
    stage = shorten(clean(job.stage, 24), 12)
    return Content.assemble(
        (stage, "bold"), " ", job_words.state_content(job), f" {words}", (whose, "$foreground-muted")
    )


def _labelled(label: str, content: Content) -> Content:
    return Content.assemble((label.ljust(_LABEL), "$foreground-muted"), content)
