"""Where a command's words go: data on stdout, talk on stderr, JSON on stdout where it was asked for."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich.cells import cell_len

from eagle_console.documents import Document
from eagle_console.text import clean, shorten

LINE_LIMIT = 64_000
"""Characters of one line on a terminal or in a pipe; command lines are longer than a screen's fields."""


@dataclass(frozen=True)
class Output:
    """The two streams of a command and whether its data is JSON."""

    json: bool = False
    data: TextIO = field(default_factory=lambda: sys.stdout)
    talk: TextIO = field(default_factory=lambda: sys.stderr)

    def document(self, document: Document) -> None:
        """One JSON document on stdout, in one line when a script reads it. ASCII: names of files may hold anything."""
        indent = 2 if self.data.isatty() else None
        print(json.dumps(document, indent=indent), file=self.data, flush=True)

    def line(self, text: str = "") -> None:
        """A line of data for people; silent in JSON mode. Control characters of the host's text are taken out."""
        if not self.json:
            print(clean(text, LINE_LIMIT), file=self.data, flush=True)

    def say(self, text: str) -> None:
        """A line of talk: progress, questions, remedies."""
        print(clean(text, LINE_LIMIT), file=self.talk, flush=True)

    @property
    def moves(self) -> bool:
        """Whether talk goes to a terminal, where a line can be replaced."""
        return self.talk.isatty()

    def moving_line(self, text: str) -> None:
        """A line of talk in the place of the last one."""
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{shorten(clean(text), width)}", end="", file=self.talk, flush=True)

    def end_moving_line(self) -> None:
        """Leaves the line that moved."""
        if self.moves:
            print(file=self.talk, flush=True)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Aligned columns; ``right`` names the columns that are numbers. The last column is never padded."""
        if self.json:
            return
        cells = [[clean(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]
        for row in [list(headers), *cells]:
            self.line("  ".join(self._pad(row, widths, right)).rstrip())

    @staticmethod
    def _pad(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
        padded = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if index in right else cell + space)
        return padded
