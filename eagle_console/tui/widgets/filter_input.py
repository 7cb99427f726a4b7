"""The one-line filter that ``/`` opens."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Input


class FilterInput(Input):
    """Hidden until it is asked for. It tells every change; enter keeps the filter and esc clears it."""

    class Applied(Message):
        """The filter's text changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The person is done with typing: the list should have the focus again."""

    def __init__(self) -> None:
        super().__init__(placeholder="only lines with this text; !text hides them", id="filter", compact=True)
        self.display = False

    def open(self) -> None:
        self.display = True
        self.focus()

    def clear_filter(self) -> bool:
        """Removes the filter; False when there was none."""
        had = self.display
        self.value = ""
        self.display = False
        if had:
            self.post_message(self.Left())
        return had

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Applied(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = bool(self.value)
        self.post_message(self.Left())


def matches(text: str, pattern: str) -> bool:
    """Whether a line passes a filter: it contains the pattern in any case, or does not where it begins with ``!``."""
    if pattern.startswith("!") and len(pattern) > 1:
        return pattern[1:].lower() not in text.lower()
    return pattern.lower() in text.lower() if pattern != "!" else True
