"""Files of JSON lines that a killed stage may have left with half a line, and that must hold each row once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Repair:
    """What was found in a file: rows that are kept, and how many were not.

    :param torn: lines that are no JSON object, such as the last one of a killed writer.
    :param repeated: rows whose key an earlier row has.
    :param foreign: rows whose group is not wanted any more.
    """

    kept: int
    torn: int
    repeated: int
    foreign: int

    @property
    def changed(self) -> bool:
        return bool(self.torn or self.repeated or self.foreign)


def read(path: Path) -> Iterator[Row]:
    """The rows of a file; lines that are no JSON object are passed over. A missing file has none.

    :raises OSError: when it cannot be read.
    """
    if not path.exists():
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = _parse(line)
            if row is not None:
                yield row


def write(path: Path, rows: Iterable[Row]) -> int:
    """Replaces a file by these rows, for good and as a whole; their number.

    :raises OSError: when it cannot be written; the old file is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    count = 0
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return count


def repair(path: Path, key: str, group: str, wanted: frozenset[str]) -> Repair:
    """Leaves in the file each whole row of a wanted group once, in its order; rewrites it only where it must.

    :param key: the field that must not repeat.
    :param group: the field that must be in ``wanted``.
    :raises OSError: when it cannot be read or rewritten.
    """
    if not path.exists():
        return Repair(0, 0, 0, 0)
    seen: set[str] = set()
    kept: list[str] = []
    torn = repeated = foreign = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = _parse(line)
            if row is None:
                torn += bool(line.strip())
            elif str(row.get(group)) not in wanted:
                foreign += 1
            elif str(row.get(key)) in seen:
                repeated += 1
            else:
                seen.add(str(row.get(key)))
                kept.append(line if line.endswith("\n") else line + "\n")
    found = Repair(len(kept), torn, repeated, foreign)
    if found.changed:
        temporary = path.with_name(f".{path.name}.new")
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    return found


class LineCounter:
    """Counts the lines of a file that grows, reading only what was added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.lines = 0

    def count(self) -> int:
        """Lines so far; a missing file has none."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                while piece := file.read(1 << 20):
                    self.lines += piece.count(b"\n")
                    self._offset += len(piece)
        except FileNotFoundError:
            pass
        return self.lines


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
