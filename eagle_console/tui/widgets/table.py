"""A table of clean text whose cursor stays on its row when the rows change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.color import Color, ColorParseError
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import DataTable

from eagle_console.text import fit


@dataclass(frozen=True)
class Column:
    """A column: its name, its width in cells (0: what is left), and whether its cells stand at the right.

    ``least`` is the width of the table from which on the column is shown. Columns of width 0 divide what is left by
    their ``share``.
    """

    name: str
    width: int
    right: bool = False
    least: int = 0
    share: int = 1


@dataclass(frozen=True)
class Row:
    """A row: a key that names its subject, clean cells, and the theme style (``bold $text-error``) of one of them."""

    key: str
    cells: tuple[str, ...]
    styled: int = -1
    style: str = ""


class Table(DataTable[Text]):
    """Rows set as a whole, painted where they differ. Cells are ``Text``: a ``str`` would be read as markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
    ]

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False)
        self._columns_wanted = tuple(columns)
        self._rows_shown: tuple[Row, ...] = ()
        self._widths: tuple[int, ...] = ()

    @property
    def selected_key(self) -> str | None:
        """The key of the row under the cursor."""
        if not self._rows_shown or not 0 <= self.cursor_row < len(self._rows_shown):
            return None
        return self._rows_shown[self.cursor_row].key

    @property
    def plain(self) -> str:
        """The shown cells as text, a line a row."""
        return "\n".join("  ".join(row.cells) for row in self._rows_shown)

    def select(self, key: str) -> None:
        """Moves the cursor to the row of ``key`` where there is one."""
        for number, row in enumerate(self._rows_shown):
            if row.key == key:
                self.move_cursor(row=number)

    def set_title(self, title: str) -> None:
        """The title in the frame; a text, never markup."""
        content = Content(title)
        if self._border_title != content:
            self.border_title = content

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Shows ``rows``, in this order."""
        widths = self._fitting_widths()
        rows = tuple({row.key: row for row in rows}.values())  # a host that repeats a key must not break the table
        keys = [row.key for row in rows]
        if widths != self._widths or keys != [row.key for row in self._rows_shown]:
            self._rebuild(rows, widths)
            return
        for before, row in zip(self._rows_shown, rows):
            if before != row:
                for number, text in self._texts(row):
                    self.update_cell(row.key, str(number), text)
        self._rows_shown = rows

    def on_resize(self) -> None:
        if self._widths and self._fitting_widths() != self._widths:
            self._rebuild(self._rows_shown, self._fitting_widths())

    def _rebuild(self, rows: tuple[Row, ...], widths: tuple[int, ...]) -> None:
        selected = self.selected_key
        place = self.cursor_row
        self.clear(columns=True)
        self._widths, self._rows_shown = widths, rows
        for number, (column, width) in enumerate(zip(self._columns_wanted, widths)):
            if not width:
                continue
            name = column.name.rjust(width) if column.right else column.name
            self.add_column(Text(name), width=width, key=str(number))
        for row in rows:
            self.add_row(*(text for _, text in self._texts(row)), key=row.key)
        keys = [row.key for row in rows]
        if rows:
            self.move_cursor(row=keys.index(selected) if selected in keys else min(max(place, 0), len(rows) - 1))

    def _texts(self, row: Row) -> list[tuple[int, Text]]:
        """The shown cells of a row with their places."""
        texts = []
        for number, (column, width, cell) in enumerate(zip(self._columns_wanted, self._widths, row.cells)):
            if not width:
                continue
            text = cell.rjust(width) if column.right else cell
            style = self._style(row.style) if number == row.styled else Style.null()
            texts.append((number, Text(fit(text, width), style=style, no_wrap=True)))
        return texts

    def _style(self, style: str) -> Style:
        """A theme style in Rich's terms, which know no theme variables."""
        words = style.split()
        color = None
        for word in words:
            if word.startswith("$"):
                try:
                    color = Color.parse(self.app.theme_variables.get(word[1:], ""))
                except ColorParseError:
                    color = None  # relative colours such as "auto 60%"
        return Style(bold="bold" in words or None, color=color)

    def _fitting_widths(self) -> tuple[int, ...]:
        """The width of each column; 0 for one that is not shown."""
        shown = [column for column in self._columns_wanted if column.least <= self.size.width]
        padding = 2 * self.cell_padding * len(shown)
        fixed = sum(column.width for column in shown)
        rest = max(8, self.size.width - fixed - padding - 2)
        shares = sum(column.share for column in shown if column.width == 0) or 1
        return tuple(
            (column.width or rest * column.share // shares) if column in shown else 0 for column in self._columns_wanted
        )
