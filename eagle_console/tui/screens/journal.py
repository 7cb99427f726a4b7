"""The journal: who changed what on the host, when and why; and whether it is as it was written."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console import journal_copy
from eagle_console.client import HostClient
from eagle_console.disk_words import below
from eagle_console.text import clean
from eagle_console.tui.actions import JOURNAL, bindings
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.filter_input import FilterInput, matches
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.prose import field
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.trash import Journal, JournalEntry

_COLUMNS = (
    Column("entry", 6, right=True),
    Column("when", 16),
    Column("what", 10),
    Column("size", 7, right=True),
    Column("says", 0),
    Column("who", 20, least=100),
)
_LABEL = 10


class JournalScreen(AskingScreen[Journal]):
    """The last entries, the newest first; the facts of the one under the cursor below."""

    NAME = JOURNAL
    BINDINGS = bindings(JOURNAL)

    def __init__(self) -> None:
        super().__init__()
        self._contradiction = ""

    def compose_body(self) -> ComposeResult:
        yield Table(_COLUMNS, id="journal-table")
        yield Lines(id="reasons")
        yield FilterInput()

    def on_mount(self) -> None:
        self._table.focus()
        super().on_mount()

    async def ask(self, client: HostClient) -> Journal:
        journal = await client.journal(journal_copy.KEPT_AT_ONCE)
        self._contradiction = journal_copy.keep(journal, client.hello).words
        return journal

    @property
    def _table(self) -> Table:
        return self.query_one("#journal-table", Table)

    def paint(self, view: View) -> None:
        super().paint(view)
        entries = self.answer.value.entries if self.answer else ()
        pattern = self.query_one(FilterInput).value
        rows = [_row(entry) for entry in entries]
        self._table.set_rows([row for row in rows if matches(" ".join(row.cells), pattern)])
        self._table.set_title(self._title(view))
        self._paint_facts()

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._paint_facts()

    def _title(self, view: View) -> str:
        title = f"Journal  {clean(self.mark(view), 200)}"
        if self.answer is None:
            return title
        journal = self.answer.value
        if journal.problem:
            return f"{title}   {clean(journal.problem, 200)}"
        if journal.broken is not None:
            return f"{title}   CHAIN BROKEN AT ENTRY {journal.broken}"
        return f"{title}   {'NOT AS IN THE COPY HERE' if self._contradiction else 'its chain holds'}"

    def _paint_facts(self) -> None:
        lines = self.query_one("#reasons", Lines)
        width = max(20, lines.size.width)
        shown = field("copy", clean(self._contradiction), width, "$text-error", _LABEL)
        key = self._table.selected_key
        entries = self.answer.value.entries if self.answer else ()
        entry = next((entry for entry in entries if str(entry.seq) == key), None)
        if entry is None:
            words = "Nothing was changed on this host yet." if self.answer and not entries else ""
            lines.set_lines([*shown, Content.styled(words, "$foreground-muted")])
            return
        workspace = self.console_app.profile.workspace
        shown += field("says", clean(entry.text), width, label=_LABEL)
        shown += field("who", clean(entry.who, 200), width, label=_LABEL)
        shown += field("receipt", clean(entry.receipt, 200), width, label=_LABEL)
        facts = ", ".join(f"{clean(name, 60)} {clean(value, 200)}" for name, value in (entry.facts or {}).items())
        shown += field("known", facts, width, label=_LABEL)
        paths = ", ".join(clean(below(path, workspace), 200) for path in entry.paths)
        shown += field("paths", paths, width, label=_LABEL)
        lines.set_lines(shown[: 9 if self.has_class("-tall") else 5])


def _row(entry: JournalEntry) -> Row:
    cells = (
        str(entry.seq),
        fmt.stamp(entry.wall),
        clean(entry.action, 40),
        "" if entry.bytes is None else fmt.gb(entry.bytes),
        ("" if entry.sound else "NOT AS WRITTEN: ") + clean(entry.text, 400),
        clean(entry.who, 80),
    )
    return Row(str(entry.seq), cells, styled=-1 if entry.sound else 4, style="bold $text-error")
