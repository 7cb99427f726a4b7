"""Following a log that is already long: its last part first, then what is appended."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

from remote.jobs.records import open_regular
from remote.watch.follow import LineSplitter

TAIL_BYTES = 4 * 1024 * 1024
"""Of what was there before: a whole load, or some thousand training steps."""

PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Lines:
    """Complete lines. ``old``: they were there when we came, so that nobody saw when they were written; the file was
    last changed at ``modified``, wall seconds. ``restarted``: the file is another one, or was emptied."""

    lines: tuple[str, ...]
    old: bool = False
    modified: float = 0.0
    restarted: bool = False


class Tail:
    """A regular file read from its tail on. A link at its end is not followed; a FIFO never waited for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file_id: Optional[tuple[int, int]] = None
        self._offset = 0
        self._splitter = LineSplitter()
        self.problem = ""

    @property
    def offset(self) -> int:
        """Bytes of the file up to which it was read."""
        return self._offset

    def poll(self) -> Lines:
        """What is new, at most ``TAIL_BYTES`` at first and ``PIECE_BYTES`` later. ``problem`` says why nothing is."""
        try:
            descriptor = open_regular(self._path)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return Lines(())
        try:
            status = os.fstat(descriptor)
            first = self._file_id is None
            restarted = not first and ((status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset)
            if first or restarted:
                self._file_id = (status.st_dev, status.st_ino)
                self._splitter = LineSplitter()
                self._offset = max(0, status.st_size - TAIL_BYTES) if first else 0
            cut = first and self._offset > 0
            data = os.pread(descriptor, TAIL_BYTES if first else PIECE_BYTES, self._offset)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return Lines(())
        finally:
            os.close(descriptor)
        self.problem = ""
        self._offset += len(data)
        lines = self._splitter.feed(data)
        return Lines(tuple(lines[1:] if cut else lines), first, status.st_mtime, restarted)

    def flush(self) -> Lines:
        """The last line where it has no end, for when its writer has ended."""
        return Lines(tuple(self._splitter.flush()))
