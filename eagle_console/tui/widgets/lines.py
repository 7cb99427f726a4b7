"""A widget that shows lines of text and repaints only those that changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget


class Lines(Widget):
    """Lines of ``Content``, each cut to the width: bytes to the terminal are the first cost of a screen."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Content, ...] = ()

    @property
    def plain(self) -> str:
        """The shown text, for tests and for copying."""
        return "\n".join(line.plain for line in self._lines)

    def set_lines(self, lines: Sequence[Content]) -> None:
        """Shows ``lines``; those that are the same as before are not painted again."""
        old, self._lines = self._lines, tuple(lines)
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y, (before, after) in enumerate(zip_longest(old, self._lines))
            if before is None or after is None or not before.is_same(after)
        ]
        if len(old) != len(self._lines) and self.styles.is_auto_height:
            self.refresh(layout=True)
        elif changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        style = self.visual_style
        if y < len(self._lines):
            strips = Visual.to_strips(self, self._lines[y], self.size.width, 1, style, pad=True)
            if strips:
                return strips[0]
        return Strip.blank(self.size.width, style.rich_style)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._lines)
