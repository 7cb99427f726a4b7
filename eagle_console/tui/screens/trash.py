"""The trash shelf: what can still be undone, for how long, and its end."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console.client import HostClient
from eagle_console.disk_words import below, countdown, freed_sentence, in_trash, items_of
from eagle_console.text import clean
from eagle_console.tui import pruning
from eagle_console.tui.actions import TRASH, bindings
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.trash import TRASHED, Receipt, TrashList

_COLUMNS = (
    Column("receipt", 22),
    Column("moved", 8, right=True),
    Column("size", 7, right=True),
    Column("purged in", 10, right=True),
    Column("state", 11, least=90),
    Column("what", 0),
    Column("by", 20, least=110),
)


class TrashScreen(AskingScreen[TrashList]):
    """Receipts, the newest first. ``u`` brings one back, ``X`` frees it for good."""

    NAME = TRASH
    BINDINGS = bindings(TRASH)

    def compose_body(self) -> ComposeResult:
        yield Table(_COLUMNS, id="trash-table")
        yield Lines(id="reasons")

    def on_mount(self) -> None:
        self._table.focus()
        super().on_mount()

    async def ask(self, client: HostClient) -> TrashList:
        return await client.trash()

    @property
    def _table(self) -> Table:
        return self.query_one("#trash-table", Table)

    def paint(self, view: View) -> None:
        super().paint(view)
        receipts = self.answer.value.receipts if self.answer else ()
        self._table.set_rows([_row(receipt, view) for receipt in receipts])
        self._table.set_title(self._title(view))
        self._paint_items()

    def action_undo(self) -> None:
        receipt = self._selected
        if receipt is None:
            self.console_app.say("The trash is empty: there is nothing to bring back.", "warning")
        elif receipt.state != TRASHED:
            self.console_app.say(f"{receipt.id} cannot be undone: it is {receipt.state.replace('_', ' ')}.", "warning")
        elif self.may_change():
            pruning.undo(self.console_app, receipt)

    def action_purge(self) -> None:
        receipt = self._selected
        if receipt is None:
            self.console_app.say("The trash is empty: there is nothing to purge.", "warning")
        elif not in_trash(receipt) and receipt.state != TRASHED:
            self.console_app.say(f"{receipt.id} has nothing left in the trash.", "warning")
        elif self.may_change():
            pruning.purge(self.console_app, receipt)

    async def action_back(self) -> None:
        await self.console_app.action_go("checkpoints")

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._paint_items()

    @property
    def _selected(self) -> Receipt | None:
        key = self._table.selected_key
        receipts = self.answer.value.receipts if self.answer else ()
        return next((receipt for receipt in receipts if receipt.id == key), None)

    def _title(self, view: View) -> str:
        title = f"Trash  {clean(self.mark(view), 200)}"
        if self.answer is None:
            return title
        trash = self.answer.value
        if trash.problem:
            return f"{title}   {clean(trash.problem, 200)}"
        left_out = f", {trash.left_out} older ones left out" if trash.left_out else ""
        return f"{title}   {fmt.gb(trash.allocated)}, none of it freed before a purge{left_out}"

    def _paint_items(self) -> None:
        lines = self.query_one("#reasons", Lines)
        receipt = self._selected
        if receipt is None:
            words = "The trash is empty." if self.answer else ""
            lines.set_lines([Content.styled(words, "$foreground-muted")])
            return
        width = max(20, lines.size.width)
        room = 7 if self.has_class("-tall") else 4
        workspace = self.console_app.profile.workspace
        head = prose(clean(f"{freed_sentence(receipt)}"), width, "bold")
        items = [
            Content(f"{fmt.gb(item.allocated):>8}  {clean(below(item.path, workspace), 400)}")
            if not item.problem
            else Content.assemble(
                f"{fmt.gb(item.allocated):>8}  {clean(below(item.path, workspace), 200)}  ",
                (clean(f"{item.state.replace('_', ' ')}: {item.problem}"), "$text-warning"),
            )
            for item in receipt.items
        ]
        shown = items if len(head) + len(items) <= room else items[: room - len(head) - 1]
        more = [] if len(shown) == len(items) else [Content(f"          and {len(items) - len(shown)} more")]
        lines.set_lines([*head, *shown, *more])


def _row(receipt: Receipt, view: View) -> Row:
    left = countdown(receipt, view.wall)
    cells = (
        clean(receipt.id, 80),
        fmt.moment(receipt.created, view.wall),
        fmt.gb(in_trash(receipt)),
        left,
        clean(receipt.state.replace("_", " "), 20),
        clean(items_of([item.path for item in receipt.items], view.profile.workspace), 400),
        clean(receipt.who, 80),
    )
    return Row(receipt.id, cells, styled=3, style="bold $text-warning" if left == "expired" else "")
