"""Training. This version watches none yet, so the panel says truthfully how a training run is started."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from eagle_console.state import Timed
from eagle_console.text import clean
from eagle_console.tui.view import View
from eagle_console.tui.widgets.load_panel import job_lines
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from pipeline.plan import catalog

STAGE = "train"


class TrainingPanel(Panel):
    """The newest run of the stage ``train``, or how to begin one."""

    TARGET = "stages"

    def heading(self, view: View) -> str:
        return "Training"

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.jobs

    def body(self, view: View, width: int, height: int) -> list[Content]:
        job = view.state.newest(STAGE)
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
