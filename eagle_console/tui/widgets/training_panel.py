"""Training: the newest run, ours or one that was started by hand; else how a run is begun."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.adopted import NOT_OURS
from eagle_console.state import Timed
from eagle_console.text import clean, shorten
from eagle_console.tui import job_words
from eagle_console.tui.view import View
from eagle_console.tui.widgets.load_panel import job_lines
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.training_lines import training_lines
from pipeline.plan import catalog
from remote.protocol.adopted import Adopted, is_adopted
from remote.protocol.jobs import Job

STAGE = "train"


class TrainingPanel(Panel):
    """The newest run of the stage ``train``, or how to begin one."""

    TARGET = "stages"

    def heading(self, view: View) -> str:
        job = view.state.newest(STAGE)
        record = view.state.adopted_record(job.id) if job is not None else None
        return "Training" if record is None else f"Training  {clean(record.name, 40)}"

    def source(self, view: View) -> Timed[Any] | None:
        job = view.state.newest(STAGE)
        return view.state.adopted if job is not None and is_adopted(job.id) else view.state.jobs

    def body(self, view: View, width: int, height: int) -> list[Content]:
        job = view.state.newest(STAGE)
        record = view.state.adopted_record(job.id) if job is not None else None
        if job is not None and record is not None and record.training is not None:
            share = job.progress.percent / 100 if job.progress.percent is not None else None
            head = _adopted_head(view, job, record, width) if height > 3 else []  # the job strip says it too
            return [*head, *training_lines(record.training, share, width, height - len(head), view.ascii)]
        if job is not None:
            return job_lines(view, job, width, height)
        if view.state.jobs is None:
            return []
        if any(stage.name == STAGE for stage in catalog.STAGES):
            command = f"eagle-console run {clean(view.profile.name, 60)} {STAGE} --follow"
            return [
                *prose("No training run was started here by eagle-console.", width),
                *prose(f"Key 2, then enter on {STAGE}. Or:  {command}", width, "$foreground-muted"),
            ]
        if height < 4:
            return prose("Not watched yet: start it on the host with speculators train.", width, "$foreground-muted")
        return [
            *prose("No training run is watched.", width),
            *prose(
                "This version has no stage for training yet: start it on the host with speculators train. "
                "Its steps and losses will show here once the stage exists.",
                width,
                "$foreground-muted",
            ),
        ]


def _adopted_head(view: View, job: Job, record: Adopted, width: int) -> list[Content]:
    """The state, and that it is not ours."""
    who = f", {clean(record.user, 40)}'s" if record.user else ""
    state = job_words.state_content(job)
    time = fmt.duration(view.seconds(job))
    rest = shorten(f"  {time}  {NOT_OURS}{who}", max(0, width - state.cell_length))
    return [Content.assemble(state, (rest, "$foreground-muted"))]
