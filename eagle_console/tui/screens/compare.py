"""Two jobs side by side over the screen that chose them: differing settings first, results, and both loss curves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from eagle_console.client import HostClient
from eagle_console.comparing import Comparison, change_words, compare, value_words
from eagle_console.text import clean, shorten
from eagle_console.training_figures import TRAINING_STAGES
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.plot import plot
from eagle_console.tui.widgets.curves import curve
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.adopted import is_adopted
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job
from remote.protocol.series import LOSS, Series, TrainingSeries

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

_COLUMNS = (
    Column("", 1),
    Column("", 20),
    Column("first (1)", 0),
    Column("second (2)", 0),
    Column("change", 15, least=70),
)


_CURVES_FROM = 30
"""Lines of the terminal from which on there is room for the curves."""


class CompareDialog(ModalScreen[None]):
    """Opened over a screen; it asks the host for both jobs in full, since lists of jobs leave their figures out."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,equals_sign", "leave", "back", show=False)]

    def __init__(self, left: Job, right: Job) -> None:
        super().__init__()
        self._left, self._right = left, right
        self._courses: tuple[TrainingSeries, TrainingSeries] | None = None

    @property
    def console_app(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -compare") as frame:
            frame.border_title = Content("Two jobs")
            frame.border_subtitle = Content("esc goes back")
            yield Lines(id="compare-head")
            yield Table(_COLUMNS, id="compare-table")
            yield Lines(id="compare-curves")

    def on_mount(self) -> None:
        self.query_one("#compare-curves").display = False
        self.query_one(Table).focus()
        self.call_after_refresh(lambda: self._show(self._compared(self._left, self._right)))
        client = self.console_app.client
        if client is not None:
            self.run_worker(self._ask(client), group="compare", exclusive=True)

    def on_resize(self) -> None:
        if self._courses is not None:
            self._show_curves(*self._courses)

    def action_leave(self) -> None:
        self.dismiss(None)

    async def _ask(self, client: HostClient) -> None:
        try:
            left, right = await asyncio.gather(*(_in_full(client, job) for job in (self._left, self._right)))
        except HOST_ERRORS as error:
            self.query_one("#compare-head", Lines).set_lines(prose(explain(error), self.size.width - 8, "$text-error"))
            return
        self._show(self._compared(left, right))
        if left.stage in TRAINING_STAGES and right.stage in TRAINING_STAGES:
            await self._ask_for_curves(client, left, right)

    async def _ask_for_curves(self, client: HostClient, left: Job, right: Job) -> None:
        try:
            self._courses = await asyncio.gather(client.series(left.id), client.series(right.id))
        except HOST_ERRORS:  # an older agent: the table is what there is
            return
        self._show_curves(*self._courses)

    def _compared(self, left: Job, right: Job) -> Comparison:
        state = self.console_app.view().state
        records = [state.adopted_record(job.id) for job in (left, right)]
        return compare(left, right, [record for record in records if record is not None])

    def _show(self, found: Comparison) -> None:
        if not self.query(Table):
            return  # the dialog is being taken away
        width = self.query_one("#compare-head").size.width
        differ = sum(1 for pair in found.settings if pair.left != pair.right)
        self.query_one("#compare-head", Lines).set_lines(
            [
                Content(shorten(f"1  {clean(found.left.id, 100)}  {found.left.state}", width)),
                Content(shorten(f"2  {clean(found.right.id, 100)}  {found.right.state}", width)),
            ]
        )
        table = self.query_one(Table)
        table.set_rows(_rows(found))
        table.set_title(f"{differ} of {len(found.settings)} settings differ")

    def _show_curves(self, left: TrainingSeries, right: TrainingSeries) -> None:
        if not self.query("#compare-curves"):
            return
        same = left.source == right.source
        losses = [_loss(left), *([] if same else [_loss(right)])]
        shown = [
            curve(item, sign, style)
            for item, sign, style in zip(losses, "12", ("$text-primary", "$text-warning"))
            if item is not None
        ]
        lines = self.query_one("#compare-curves", Lines)
        lines.display = bool(shown) and self.size.height >= _CURVES_FROM
        if not lines.display:
            return
        words = "loss of the run that both worked on" if same else "loss, first (1) and second (2)"
        head = Content.styled(words, "$foreground-muted")
        ascii = self.console_app.view().ascii
        self.call_after_refresh(
            lambda: lines.set_lines([head, *plot(shown, lines.size.width, lines.size.height - 1, ascii=ascii)])
        )


def _rows(found: Comparison) -> list[Row]:
    rows = []
    for pair in found.settings:
        differs = pair.left != pair.right
        cells = ("*" if differs else "", clean(pair.name, 60), value_words(pair.left), value_words(pair.right), "")
        rows.append(Row(f"setting {pair.name}", cells, styled=1, style="bold $text-warning" if differs else ""))
    for pair in found.results:
        cells = (
            "",
            clean(pair.name, 60),
            value_words(pair.left, pair.unit),
            value_words(pair.right, pair.unit),
            change_words(pair),
        )
        rows.append(Row(f"result {pair.name}", cells, styled=1, style="bold"))
    return rows


def _loss(course: TrainingSeries) -> Series | None:
    return next((item for item in course.series if item.name == LOSS), None)


async def _in_full(client: HostClient, job: Job) -> Job:
    """The job with its figures; one that is gone meanwhile as it was listed."""
    if is_adopted(job.id):
        return job
    try:
        return await client.job(job.id)
    except RequestError:
        return job
