"""The model load alone: all phases with their shares, the files of each rank, and the starts before this one."""

from __future__ import annotations

import posixpath

from textual.app import ComposeResult

from eagle_console import format as fmt
from eagle_console.client import HostClient
from eagle_console.text import clean
from eagle_console.tui.actions import LOAD, bindings
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.load_panel import STAGE, FullLoadPanel
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.jobs import Job
from remote.protocol.starts import EarlierStart, EarlierStarts

_COLUMNS = (
    Column("ready at", 16),
    Column("model", 0),
    Column("TP", 3, right=True),
    Column("took", 8, right=True),
    Column("start", 7, right=True, least=90),
    Column("weights", 8, right=True),
    Column("read at", 9, right=True, least=80),
    Column("compile", 8, right=True, least=90),
    Column("capture", 8, right=True, least=90),
    Column("page cache", 10, least=110),
    Column("compiled", 8, least=110),
    Column("vLLM", 8, least=120),
)


class LoadScreen(AskingScreen[EarlierStarts]):
    """The newest load over the earlier ones of this workspace."""

    NAME = LOAD
    BINDINGS = bindings(LOAD)
    REFRESH = 20.0
    STALE = 50.0

    def compose_body(self) -> ComposeResult:
        yield FullLoadPanel(id="load")
        yield Table(_COLUMNS, id="starts")

    def on_mount(self) -> None:
        self.query_one(FullLoadPanel).focus()
        super().on_mount()

    async def ask(self, client: HostClient) -> EarlierStarts:
        return await client.starts()

    def paint(self, view: View) -> None:
        starts = self.answer.value.starts if self.answer is not None else ()
        table = self.query_one(Table)
        table.display = bool(starts) or bool(self.trouble)
        super().paint(view)
        if table.display:
            table.set_rows([_row(number, start) for number, start in enumerate(starts)])
            table.set_title(f"{fmt.plural(len(starts), 'earlier start')}  {clean(self.mark(view), 200)}")

    def selected_job(self) -> Job | None:
        return self.console_app.view().state.newest(STAGE)

    def action_start(self) -> None:
        self.console_app.start_stage(STAGE)


def _row(number: int, start: EarlierStart) -> Row:
    weights = start.spans.get("weights")
    from_storage = start.warm is False and bool(weights)
    cells = (
        fmt.stamp(start.wall),
        clean(posixpath.basename(start.model.rstrip("/")), 100) or fmt.UNKNOWN,
        str(start.tensor_parallel) if start.tensor_parallel else fmt.UNKNOWN,
        fmt.duration(start.seconds),
        fmt.duration(start.spans.get("start")),
        fmt.duration(weights),
        f"{fmt.gb(start.size / weights)}/s" if from_storage and start.size and weights else fmt.UNKNOWN,
        fmt.duration(start.spans.get("compile")),
        fmt.duration(start.spans.get("capture")),
        fmt.UNKNOWN if start.warm is None else "warm" if start.warm else "cold",
        clean(start.cache, 8) or fmt.UNKNOWN,
        clean(start.version, 20) or fmt.UNKNOWN,
    )
    return Row(str(number), cells)
