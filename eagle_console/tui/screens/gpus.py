"""GPUs in full: a row for each, and the processes that hold their memory."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.content import Content

from eagle_console import format as fmt
from eagle_console.state import Timed
from eagle_console.text import clean
from eagle_console.tui import freeing
from eagle_console.tui.actions import GPUS, bindings
from eagle_console.tui.holders import holders
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.filter_input import FilterInput, matches
from eagle_console.tui.widgets.gpu_panel import GpuPanel, driver_lines, gpu_lines, host_line
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.gpu import DRIVER_OK

_COLUMNS = (
    Column("pid", 8, right=True),
    Column("GPUs", 9),
    Column("memory", 10, right=True),
    Column("user", 10),
    Column("job", 22, least=90),
    Column("process", 0),
)


class FullGpuPanel(GpuPanel):
    """All rows, with what the dashboard has no room for."""

    TARGET = ""

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.gpus

    def body(self, view: View, width: int, height: int) -> list[Content]:
        if view.state.gpus is None:
            return super().body(view, width, height)
        snapshot = view.state.gpus.value
        if snapshot.driver != DRIVER_OK or not snapshot.gpus:
            return driver_lines(snapshot, width)
        host = [host_line(view.state.host.value, width)] if view.state.host else []
        return [*gpu_lines(view, snapshot, width), *host]


class GpusScreen(ConsoleScreen):
    """GPU rows over the table of holders, the largest first; ``/`` filters the table."""

    NAME = GPUS
    BINDINGS = bindings(GPUS)

    def compose_body(self) -> ComposeResult:
        yield FullGpuPanel(id="gpus")
        yield Table(_COLUMNS, id="holders")
        yield FilterInput()

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        super().on_mount()

    def paint(self, view: View) -> None:
        gpus = view.state.gpus.value.gpus if view.state.gpus else ()
        room = self.query_one("#body").size.height
        panel = self.query_one(FullGpuPanel)
        panel.styles.height = max(5, min(len(gpus) + 4, room * 2 // 3 if room else 12))
        super().paint(view)
        rows = self._rows(view)
        table = self.query_one(Table)
        table.set_rows(rows)
        table.set_title(_table_title(view, len(rows)))

    def action_free(self) -> None:
        key = self.query_one(Table).selected_key
        freeing.free(self.console_app, int(key) if key is not None else None)

    def action_filter(self) -> None:
        self.query_one(FilterInput).open()

    async def action_back(self) -> None:
        if not self.query_one(FilterInput).clear_filter():
            await super().action_back()

    @on(FilterInput.Applied)
    def _filter_changed(self) -> None:
        self.paint(self.console_app.view())

    @on(FilterInput.Left)
    def _filter_left(self) -> None:
        self.query_one(Table).focus()

    def _rows(self, view: View) -> list[Row]:
        pattern = self.query_one(FilterInput).value
        rows = []
        for holder in holders(view.state.gpus.value) if view.state.gpus else []:
            process = holder.process
            command = clean(process.command, 400) if process.command else holder.name
            cells = (
                str(holder.pid),
                holder.gpu_text,
                holder.memory_text,
                clean(process.user, 30) if process.user else "–",
                clean(process.job, 60) if process.job else "–",
                command,
            )
            if matches(" ".join(cells), pattern):
                rows.append(Row(str(holder.pid), cells))
        return rows


def _table_title(view: View, shown: int) -> str:
    if view.state.gpus is None:
        return "Processes that hold GPU memory"
    known = [gpu for gpu in view.state.gpus.value.gpus if gpu.processes is not None]
    if not known and view.state.gpus.value.gpus:
        return "The driver does not say which processes hold GPU memory"
    return f"{fmt.plural(shown, 'process', 'processes') if shown else 'No process'} with GPU memory"
