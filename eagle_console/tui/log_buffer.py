"""The lines of a log in memory: bounded, filtered, with its progress bars folded and its first error known. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eagle_console.text import clean
from eagle_console.tui.widgets.filter_input import matches

MAX_LINES = 20_000
"""The newest lines that are kept. Beyond it a tenth is dropped at once, so that dropping costs little a line."""

_BAR = re.compile(r"^(?P<name>[^|\n]{0,120}?):?\s*\d{1,3}%(?:\s+Completed)?\s*\|")
"""A progress bar's line as tqdm and vLLM print it; each one is ended by a carriage return, not a line end."""

_ERROR = re.compile(
    r"\bERROR\b|\bCRITICAL\b|\bFATAL\b|^Traceback \(most recent call last\)|^[\w.]*(?:Error|Exception)\b:"
)
_WARNING = re.compile(r"\bWARNING\b|\bWARN\b")


def severity(line: str) -> str:
    """``error``, ``warning`` or empty, from the words that loggers write."""
    if _ERROR.search(line):
        return "error"
    return "warning" if _WARNING.search(line) else ""


class LogBuffer:
    """Lines by number from the first one kept. ``shown`` holds those that pass the filter, in order.

    ``dropped`` counts the lines that are not kept any more, ``removed`` those of them that were shown.
    """

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines = max_lines
        self._lines: list[str] = []
        self._bar = ""
        self.pattern = ""
        self.shown: list[str] = []
        self.dropped = 0
        self.removed = 0

    @property
    def total(self) -> int:
        """Lines kept."""
        return len(self._lines)

    def append(self, raw: Iterable[str]) -> bool:
        """Adds lines as they came. A bar replaces the bar of the same name just before it.

        :returns: whether lines that were shown before have changed or gone, not only new ones been added.
        """
        changed = False
        for text in raw:
            line = clean(text)
            bar = _bar_name(line)
            if bar and bar == self._bar and self._lines:
                self._replace_last(line)
                changed = True
            else:
                self._lines.append(line)
                if matches(line, self.pattern):
                    self.shown.append(line)
            self._bar = bar
        if len(self._lines) > self._max_lines:
            self._drop()
            changed = True
        return changed

    def filter(self, pattern: str) -> None:
        """Shows only the lines that pass ``pattern`` (see ``matches``)."""
        self.pattern = pattern
        self.shown = [line for line in self._lines if matches(line, pattern)]

    def first_error(self, known: str = "") -> int | None:
        """The place in ``shown`` of the line ``known``, the cause that the host found, else of the first error."""
        wanted = clean(known).strip()
        if wanted:
            for number, line in enumerate(self.shown):
                if wanted in line or (len(line) > 20 and line in wanted):
                    return number
        return next((number for number, line in enumerate(self.shown) if severity(line) == "error"), None)

    def find(self, text: str, start: int, step: int = 1) -> int | None:
        """The next shown line with a text (see ``matches``) from ``start`` on, backwards with a ``step`` of -1."""
        wanted = range(max(0, start), len(self.shown)) if step > 0 else range(min(start, len(self.shown) - 1), -1, -1)
        return next((number for number in wanted if matches(self.shown[number], text)), None)

    def problem(self, start: int, step: int = 1) -> int | None:
        """The next shown error or warning from ``start`` on, backwards with a ``step`` of -1.

        Of neighbours, as the lines of a traceback, only the first one counts.
        """
        wanted = range(max(0, start), len(self.shown)) if step > 0 else range(min(start, len(self.shown) - 1), -1, -1)
        for number in wanted:
            if severity(self.shown[number]) and not (number and severity(self.shown[number - 1])):
                return number
        return None

    def _replace_last(self, line: str) -> None:
        if self.shown and matches(self._lines[-1], self.pattern):
            self.shown.pop()
        self._lines[-1] = line
        if matches(line, self.pattern):
            self.shown.append(line)

    def _drop(self) -> None:
        cut = len(self._lines) - self._max_lines + self._max_lines // 10
        hidden = sum(1 for line in self._lines[:cut] if matches(line, self.pattern))
        del self._lines[:cut]
        del self.shown[:hidden]
        self.dropped += cut
        self.removed += hidden


def _bar_name(line: str) -> str:
    match = _BAR.match(line)
    return (match["name"].strip() or "bar") if match else ""
