"""A log of any length: only the visible lines are ever rendered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from eagle_console.tui.log_buffer import LogBuffer, severity


class LogView(ScrollView, can_focus=True):
    """Shows a ``LogBuffer``. ``following`` keeps the end in sight; ``wrapped`` folds long lines at the width."""

    COMPONENT_CLASSES = {"log--error", "log--warning", "log--match"}  # noqa: RUF012 - Textual's own type

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.buffer = LogBuffer()
        self.following = True
        self.wrapped = False
        self._marked: int | None = None
        self._ends: list[int] = []  # for wrapped lines: the row after each shown line

    def reset(self) -> None:
        """Forgets all lines, for another log; the filter stays."""
        pattern = self.buffer.pattern
        self.buffer = LogBuffer()
        self.buffer.filter(pattern)
        self._marked = None
        self._lay_out()

    def append(self, lines: Iterable[str]) -> None:
        """Adds lines at the end."""
        before = len(self.buffer.shown)
        changed = self.buffer.append(lines)
        if not changed and len(self.buffer.shown) == before:
            return
        self._lay_out(before if not changed else 0)

    def set_filter(self, pattern: str) -> None:
        self.buffer.filter(pattern)
        self._marked = None
        self._lay_out()

    def set_wrapped(self, wrapped: bool) -> None:
        self.wrapped = wrapped
        self._lay_out()

    def follow(self, following: bool) -> None:
        self.following = following
        self._stay_at_end()

    def jump_to(self, number: int) -> None:
        """Stops following and shows the line ``number`` of the shown ones, marked."""
        self.following = False
        self._marked = number
        row = self._ends[number - 1] if self.wrapped and number else number
        self.scroll_to(y=max(0, row - self.size.height // 3), animate=False, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        width = self.scrollable_content_region.width
        row = scroll_y + y
        base = self.rich_style
        number, part = self._line_at(row)
        if number is None:
            return Strip.blank(width, base)
        line = self.buffer.shown[number]
        style = base + self._style_of(line, number)
        if self.wrapped:
            pieces = chop_cells(line, max(1, width))
            text = pieces[part] if part < len(pieces) else ""
            return Strip([Segment(text, style)]).adjust_cell_length(width, style)
        strip = Strip([Segment(line, style)], cell_len(line))
        return strip.crop_extend(scroll_x, scroll_x + width, style)

    def _style_of(self, line: str, number: int) -> Style:
        kind = severity(line)
        style = self.get_component_rich_style(f"log--{kind}", partial=True) if kind else Style.null()
        if number == self._marked:
            style += self.get_component_rich_style("log--match", partial=True)
        return style

    def _line_at(self, row: int) -> tuple[int | None, int]:
        """The shown line of a row, and which part of it where lines are wrapped."""
        if not self.wrapped:
            return (row, 0) if 0 <= row < len(self.buffer.shown) else (None, 0)
        number = bisect_right(self._ends, row)
        if number >= len(self._ends):
            return (None, 0)
        return (number, row - (self._ends[number - 1] if number else 0))

    def _lay_out(self, added_from: int = 0) -> None:
        """Sets the virtual size; with ``added_from`` only lines from there on are new."""
        shown = self.buffer.shown
        width = max(1, self.scrollable_content_region.width)
        if self.wrapped:
            kept = self._ends[:added_from]
            start = kept[-1] if kept else 0
            rows = (max(1, -(-cell_len(line) // width)) for line in shown[len(kept) :])
            self._ends = kept + [start + total for total in accumulate(rows)]
            self.virtual_size = Size(width, self._ends[-1] if self._ends else 0)
        else:
            self._ends = []
            widest = max((cell_len(line) for line in shown[added_from:]), default=1)
            self.virtual_size = Size(max(widest, self.virtual_size.width if added_from else 1), len(shown))
        self._stay_at_end()
        self.call_after_refresh(self._stay_at_end)  # a scrollbar that appears takes a line
        self.refresh()

    def _stay_at_end(self) -> None:
        if self.following:
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < old_value and new_value < self.max_scroll_y:
            self.following = False
