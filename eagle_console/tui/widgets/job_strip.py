"""The jobs on one line: the live ones first, then the newest ended ones."""

from __future__ import annotations

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.adopted import NOT_OURS
from eagle_console.text import clean, shorten
from eagle_console.tui import job_words
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines
from remote.protocol.adopted import is_adopted
from remote.protocol.jobs import LIVE_STATES, Job


class JobStrip(Lines):
    """Stage, state and time of as many jobs as fit."""

    def show(self, view: View) -> None:
        """Paints the line for a picture."""
        line = strip(view, self.size.width)
        self.set_lines([line if view.is_current(view.state.jobs) else line.stylize("dim")])


def strip(view: View, width: int) -> Content:
    """The line for a width; jobs that do not fit are counted."""
    ours = view.state.jobs.value.jobs if view.state.jobs else ()
    jobs = (*ours, *(job for job in view.state.adopted_jobs() if job.state in LIVE_STATES))
    if not jobs:
        empty = "no jobs yet: key 2 shows what can be started" if view.state.jobs else "jobs –"
        return Content.styled(shorten(f" {empty}", width), "$foreground-muted")
    ordered = sorted(jobs, key=lambda job: job.state not in LIVE_STATES)
    line = Content(" ")
    for number, job in enumerate(ordered):
        rest = len(ordered) - number
        piece = Content.assemble("  |  " if number else "", _piece(view, job))
        more = Content.styled(f"  | {rest} more", "$foreground-muted")
        if line.cell_length + piece.cell_length > width - (more.cell_length if rest > 1 else 0):
            return Content.assemble(line, more)
        line = Content.assemble(line, piece)
    return line


def _piece(view: View, job: Job) -> Content:
    time = fmt.duration(view.seconds(job))
    end = "" if job.state in LIVE_STATES else f" {job_words.exit_text(job)}".replace(f" {fmt.UNKNOWN}", "")
    percent = job.progress.percent
    done = (
        f" {fmt.percent(percent)}"
        if job.state in LIVE_STATES and percent is not None and not job.progress.ready
        else ""
    )
    mark = Content.styled(f"  {NOT_OURS}", "$foreground-muted") if is_adopted(job.id) else Content("")
    return Content.assemble(
        (clean(job.stage, 24), "bold"), "  ", job_words.state_content(job), f"{end}  {time}{done}", mark
    )
