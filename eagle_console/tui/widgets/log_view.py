"""A log of any length: only the visible lines are ever rendered."""

from __future__ import annotations

import re
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

    COMPONENT_CLASSES = {"log--error", "log--warning", "log--match", "log--found"}  # noqa: RUF012 - Textual's own type

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.buffer = LogBuffer()
        self.following = True
        self.wrapped = False
        self.searched = ""
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
        before, removed = len(self.buffer.shown), self.buffer.removed
        changed = self.buffer.append(lines)
        self._keep_in_sight(self.buffer.removed - removed)
        if not changed and len(self.buffer.shown) == before:
            return
        self._lay_out(before if not changed else 0)

    def set_filter(self, pattern: str) -> None:
        if pattern == self.buffer.pattern:
            return
        self.buffer.filter(pattern)
        self._marked = None
        self._lay_out()

    def search(self, text: str) -> None:
        """Marks a text wherever it stands; nothing for an empty one."""
        self.searched = text
        self.refresh()

    def search_filtered(self, text: str) -> None:
        """Shows all lines again and searches the text of the filter, from the line on that was the first in sight."""
        first = self._line_at(self.scroll_offset.y)[0]
        line = self.buffer.shown[first] if first is not None else None
        self.set_filter("")
        self.search(text)
        place = next((number for number, other in enumerate(self.buffer.shown) if other is line), None)
        self._marked = None if place is None else place - 1

    def next_match(self, step: int) -> bool:
        """Goes to the next line with the searched text, from the marked line or the first one in sight on, in a circle.

        False where no line has it.
        """
        return self._go(self.buffer.find(self.searched, self._after(step), step), step, self.searched)

    def next_problem(self, step: int) -> bool:
        """Goes to the next error or warning; False where there is none in that direction."""
        number = self.buffer.problem(self._after(step), step)
        if number is not None:
            self.jump_to(number)
        return number is not None

    @property
    def marked_or_in_sight(self) -> list[str]:
        """The marked line, else the lines in sight: what a person would copy."""
        shown = self.buffer.shown
        if self._marked is not None and 0 <= self._marked < len(shown):
            return [shown[self._marked]]
        first = self._line_at(self.scroll_offset.y)[0]
        last = self._line_at(min(self.virtual_size.height, self.scroll_offset.y + self.size.height) - 1)[0]
        return [] if first is None or last is None else shown[first : last + 1]

    def _after(self, step: int) -> int:
        """Where the next look begins: beside the marked line, or at the first line in sight."""
        if self._marked is not None:
            return self._marked + step
        first = self._line_at(self.scroll_offset.y)[0] or 0
        return first if step > 0 else first - 1

    def _go(self, number: int | None, step: int, text: str) -> bool:
        if number is None:
            number = self.buffer.find(text, 0 if step > 0 else len(self.buffer.shown) - 1, step)
        if number is None:
            return False
        self.jump_to(number)
        return True

    def _keep_in_sight(self, removed: int) -> None:
        """The text that is read stays where it is when lines before it are dropped."""
        if not removed:
            return
        if self._marked is not None:
            self._marked = self._marked - removed if self._marked >= removed else None
        if not self.following:
            rows = (self._ends[removed - 1] if removed <= len(self._ends) else 0) if self.wrapped else removed
            self.scroll_to(y=max(0, self.scroll_offset.y - rows), animate=False, immediate=True)

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
            return Strip(self._segments(text, style)).adjust_cell_length(width, style)
        strip = Strip(self._segments(line, style), cell_len(line))
        return strip.crop_extend(scroll_x, scroll_x + width, style)

    def _segments(self, text: str, style: Style) -> list[Segment]:
        """A line's text with what is searched in it."""
        if not self.searched or self.searched.startswith("!"):
            return [Segment(text, style)]
        found = style + self.get_component_rich_style("log--found", partial=True)
        pieces = re.split(f"({re.escape(self.searched)})", text, flags=re.IGNORECASE)
        return [Segment(piece, found if number % 2 else style) for number, piece in enumerate(pieces) if piece]

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
