"""All hosts side by side: enter brings one in front."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll

from eagle_console.tui.actions import HOSTS, bindings
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.host_tile import HostTile

_TILE_WIDTH = 38
"""The least width of a tile: the memory of eight GPUs with its bar."""


class HostsScreen(ConsoleScreen):
    """A tile a host. Opening it connects to all of them, a few at a time."""

    NAME = HOSTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(HOSTS),
        Binding("left,h", "move(-1)", "left", show=False),
        Binding("right,l", "move(1)", "right", show=False),
        Binding("up,k", "move_row(-1)", "up", show=False),
        Binding("down,j", "move_row(1)", "down", show=False),
    ]

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="tiles", can_focus=False), Grid():
            for number, name in enumerate(self.console_app.fleet.names):
                yield HostTile(name, id=f"tile-{number}")

    @property
    def selected(self) -> str:
        """The host whose tile has the focus, else the one in front."""
        return self.focused.host if isinstance(self.focused, HostTile) else self.console_app.fleet.front

    def on_mount(self) -> None:
        self._focus(self.console_app.fleet.names.index(self.console_app.fleet.front))
        super().on_mount()

    def on_screen_resume(self) -> None:
        self.console_app.connect_all()
        super().on_screen_resume()

    def paint(self, view: View) -> None:
        columns = self._columns
        grid = self.query_one(Grid)
        if grid.styles.grid_size_columns != columns:
            grid.styles.grid_size_columns = columns
        with self.app.batch_update():
            self.paint_frame(view)
            for tile in self.query(HostTile):
                self._show(tile)

    def paint_focused(self, view: View) -> None:
        if isinstance(self.focused, HostTile):
            self._show(self.focused)

    async def action_open(self) -> None:
        await self.console_app.show_host(self.selected)

    @on(events.Click)
    async def _clicked(self, event: events.Click) -> None:
        """One click chooses a tile, two open it."""
        if event.chain == 2 and isinstance(event.widget, HostTile):
            await self.action_open()

    def action_move(self, step: int) -> None:
        names = self.console_app.fleet.names
        self._focus(max(0, min(len(names) - 1, names.index(self.selected) + step)))

    def action_move_row(self, step: int) -> None:
        names = self.console_app.fleet.names
        place = names.index(self.selected) + step * self._columns
        if 0 <= place < len(names):
            self._focus(place)

    @property
    def _columns(self) -> int:
        return max(1, min(len(self.console_app.fleet.names), self.query_one("#tiles").size.width // _TILE_WIDTH))

    def _focus(self, place: int) -> None:
        self.query_one(f"#tile-{place}", HostTile).focus()

    def _show(self, tile: HostTile) -> None:
        tile.in_front = tile.host == self.console_app.fleet.front
        tile.show(self.console_app.view_of(tile.host))
