"""The model load alone: all phases, figures and the command line."""

from __future__ import annotations

from textual.app import ComposeResult

from eagle_console.tui.actions import LOAD, bindings
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.widgets.load_panel import STAGE, FullLoadPanel
from remote.protocol.jobs import Job


class LoadScreen(ConsoleScreen):
    NAME = LOAD
    BINDINGS = bindings(LOAD)

    def compose_body(self) -> ComposeResult:
        yield FullLoadPanel(id="load")

    def selected_job(self) -> Job | None:
        return self.console_app.view().state.newest(STAGE)

    def action_start(self) -> None:
        self.console_app.start_stage(STAGE)
