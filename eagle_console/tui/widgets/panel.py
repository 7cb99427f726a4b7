"""A bordered panel: its title with the freshness of what it shows, and lines that are computed for its size."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.content import Content

from eagle_console.state import STALE_SECONDS, Timed
from eagle_console.text import clean, shorten
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines


class Panel(Lines, can_focus=True):
    """Subclasses say what they show: ``heading``, ``source`` and ``body``. Stale bodies are dimmed."""

    TARGET: ClassVar[str] = ""
    """The full screen that ``enter`` opens."""

    STALE_AFTER: ClassVar[float] = STALE_SECONDS
    """Seconds; what is asked for now and then lives longer than what is subscribed to."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._view: View | None = None
        self._title = Content("")

    def heading(self, view: View) -> str:
        """The title, made of clean text."""
        raise NotImplementedError

    def source(self, view: View) -> Timed[Any] | None:
        """The value whose freshness the panel shows."""
        raise NotImplementedError

    def body(self, view: View, width: int, height: int) -> list[Content]:
        """The lines for a size in cells."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Paints the picture where it differs from what is shown."""
        self._view = view
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        source = self.source(view)
        mark = view.mark(source, self.STALE_AFTER)
        heading = shorten(clean(self.heading(view)), max(8, width - mark.cell_length - 4))
        title = Content.assemble((heading, "bold"), "  ", mark)
        if not title.is_same(self._title):
            self._title = title
            self.border_title = title  # Content is never read as markup
        lines = self.body(view, width, height)[:height]
        current = view.is_current(source, self.STALE_AFTER)
        self.set_lines(lines if current else [line.stylize("dim") for line in lines])

    def on_resize(self) -> None:
        if self._view is not None:
            self.show(self._view)
