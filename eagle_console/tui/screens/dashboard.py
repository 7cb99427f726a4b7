"""Everything at once: four panels over the job strip."""

from __future__ import annotations

import contextlib

from textual import work
from textual.app import ComposeResult
from textual.containers import Grid

from eagle_console.tui.actions import DASHBOARD, bindings
from eagle_console.tui.link import HOST_ERRORS
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.disk_panel import DiskPanel
from eagle_console.tui.widgets.gpu_panel import GpuPanel
from eagle_console.tui.widgets.job_strip import JobStrip
from eagle_console.tui.widgets.load_panel import STAGE, LoadPanel
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.training_panel import TrainingPanel
from remote.protocol.jobs import LIVE_STATES, Job

COURSE_SECONDS = 10.0
"""Between two looks at the histories of the run that is shown."""

_BORDERS = 2
_WIDE_EXTRA = 6
"""Beside the GPU rows of a wide dashboard: the column names, the host line, some holders and a blank."""
_LOWER_ROOM = 10
"""Lines that the panels below the GPUs keep, borders included."""


class DashboardScreen(ConsoleScreen):
    """The first screen. Its grid follows the number of GPUs and the size of the terminal."""

    NAME = DASHBOARD
    BINDINGS = bindings(DASHBOARD)

    def __init__(self) -> None:
        super().__init__()
        self._course_of = ""

    def on_mount(self) -> None:
        self.set_interval(COURSE_SECONDS, self._ask_for_course)
        super().on_mount()

    def compose_body(self) -> ComposeResult:
        with Grid(id="panels"):
            yield GpuPanel(id="gpus")
            yield LoadPanel(id="load")
            yield TrainingPanel(id="training")
            yield DiskPanel(id="disk")
        yield JobStrip(id="strip")

    def paint(self, view: View) -> None:
        self._set_rows(view)
        super().paint(view)
        self.query_one(JobStrip).show(view)
        job = self.query_one(TrainingPanel).job(view)
        if job is not None and job.id != self._course_of and self.console_app.client is not None:
            self._course_of = job.id
            self._ask_for_course()

    @work(group="course", exclusive=True)
    async def _ask_for_course(self) -> None:
        """The histories of the shown run: the list of jobs has only its newest figures."""
        client, panel = self.console_app.client, self.query_one(TrainingPanel)
        job = panel.job(self.console_app.view())
        if client is None or job is None or not self.is_current:
            return
        if job.state not in LIVE_STATES and panel.course is not None and panel.course.job == job.id:
            return  # it does not change any more
        with contextlib.suppress(*HOST_ERRORS):  # the figures stand without their histories
            panel.course = await client.series(job.id)
            panel.show(self.console_app.view())

    def selected_job(self) -> Job | None:
        view = self.console_app.view()
        job = view.state.newest(STAGE)
        if job is not None and job.state in LIVE_STATES:
            return job
        live = view.state.live_jobs()
        return live[0] if len(live) == 1 else None

    async def action_open(self) -> None:
        if isinstance(self.focused, Panel):
            await self.console_app.action_go(self.focused.TARGET)

    def action_start(self) -> None:
        self.console_app.start_stage(STAGE)

    def action_scan(self) -> None:
        self.console_app.scan_disk()

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        else:
            focused = self.focused if isinstance(self.focused, Panel) else self.query_one(GpuPanel)
            self.maximize(focused, container=False)

    async def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()

    def _set_rows(self, view: View) -> None:
        grid = self.query_one("#panels", Grid)
        room = grid.size.height
        gpus = len(view.state.gpus.value.gpus) if view.state.gpus else 0
        wanted = _BORDERS + (max(gpus, 3) if gpus else 4)
        if self.has_class("-wide"):
            top = max(min(wanted + _WIDE_EXTRA, room - _LOWER_ROOM), min(15, room // 2), 0)
            if room - top > room * 6 // 10:
                top = room * 4 // 10
            rows = f"{top} 1fr" if room else "1fr 1fr"
        else:
            top = max(5, min(wanted, room - _LOWER_ROOM))
            rows = f"{top} 4 1fr"
        if getattr(self, "_rows", None) != rows:
            self._rows = rows
            grid.styles.grid_rows = rows
