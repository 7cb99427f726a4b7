"""What every full screen has: the status line, the link's banner, a body, and the keys below."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static

from eagle_console.tui.view import View
from eagle_console.tui.widgets.key_footer import KeyFooter
from eagle_console.tui.widgets.link_banner import LinkBanner
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.status_bar import StatusBar
from remote.protocol.jobs import Job

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

TOO_SMALL = "The terminal is too small: eagle-console needs at least 60 columns and 16 lines."


class ConsoleScreen(Screen[None]):
    """A full screen. Subclasses give their ``NAME`` in the action table, ``compose_body`` and what ``paint`` needs."""

    NAME = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-too-narrow"), (60, "-compact"), (100, "-wide")]  # noqa: RUF012 - Textual's own type
    VERTICAL_BREAKPOINTS = [(0, "-too-short"), (16, "-short"), (30, "-tall")]  # noqa: RUF012

    @property
    def console_app(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    def compose(self) -> ComposeResult:
        yield StatusBar(id="status")
        yield LinkBanner(id="banner")
        with Container(id="body"):
            yield from self.compose_body()
        yield Static(TOO_SMALL, id="too-small", markup=False)
        yield KeyFooter(self.NAME, id="keys")

    def compose_body(self) -> ComposeResult:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.paint(self.console_app.view())

    def on_screen_resume(self) -> None:
        self.paint(self.console_app.view())

    def on_resize(self) -> None:
        # Children have their new sizes only after this refresh.
        self.call_after_refresh(lambda: self.paint(self.console_app.view()))

    def paint(self, view: View) -> None:
        """Shows a picture; every widget repaints only what differs."""
        with self.app.batch_update():
            self.paint_frame(view)
            for panel in self.query(Panel):
                panel.show(view)

    def paint_frame(self, view: View) -> None:
        """The lines around the body, painted also while the body is paused."""
        self.query_one(StatusBar).show(view)
        self.query_one(LinkBanner).show(view)
        self.query_one(KeyFooter).show(view)

    def paint_focused(self, view: View) -> None:
        """Only the panel that has the focus: it may be painted more often than the rest."""
        if isinstance(self.focused, Panel):
            self.focused.show(view)

    def selected_job(self) -> Job | None:
        """The job that ``x`` would stop."""
        return None

    async def action_back(self) -> None:
        await self.console_app.action_go("dashboard")

    def action_forward(self) -> None:
        self.console_app.forward(self.selected_job())

    def action_copy_command(self) -> None:
        self.console_app.copy_command(self.selected_job())

    def action_stop(self) -> None:
        self.console_app.ask_to_stop(self.selected_job())
