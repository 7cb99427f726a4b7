"""Records of rich's console logger joined again from the lines it wrapped them to: a pure function of state and line.

speculators logs through ``rich.logging.RichHandler``. A record begins with its time (blank while the second is the
same) and level; at the right of its first line stands the source, ``trainer.py:587``; what does not fit goes on below,
under the first line's text. A word that is too long for a line is cut where the line ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

_HEAD = re.compile(r"(?:\[[^\]]{1,40}\]|\s{6,40}) ?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +")
_SOURCE = re.compile(r"[\w.]{1,100}\.py:\d+$")
_INDENT = 20
MAX_RECORD = 16 * 1024
"""Characters of a record; what is over it is left out."""


@dataclass(frozen=True)
class Record:
    """The record that is being written: its text so far, and the width that its lines can fill (0 while unknown)."""

    text: str
    level: str = ""
    width: int = 0
    full: bool = False


def head(line: str) -> Optional[Record]:
    """The record that this line begins, None for a line that begins none."""
    match = _HEAD.match(line)
    if match is None:
        return None
    text, width = line[match.end() :].rstrip(), 0
    before, _, last = text.rpartition(" ")
    if _SOURCE.match(last):
        text, width = before.rstrip(), len(before)
    return Record(text, match["level"], width, bool(width) and len(text) >= width)


def extend(record: Record, line: str) -> Optional[Record]:
    """The record with one more line; None when the line does not belong to it."""
    if not line.startswith(" " * _INDENT):
        return None
    piece = line.strip()
    if not piece or len(record.text) > MAX_RECORD:
        return record
    glue = "" if record.full else " "
    return Record(
        record.text + glue + piece, record.level, record.width, bool(record.width) and len(piece) >= record.width
    )
