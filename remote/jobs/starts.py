"""The host's file of earlier starts: ``<workspace>/.eagle_console/starts.jsonl``, appended by runners and watchers."""

from __future__ import annotations

import fcntl
import os

from remote.jobs.records import open_regular
from remote.watch import history
from remote.watch.history import PastStart

FILE = os.path.join(".eagle_console", "starts.jsonl")

MAX_BYTES = 1024 * 1024
"""A longer file is cut to its newest starts."""

SAME_SECONDS = 5.0
"""Two starts of the same key that were ready within so short a time are one, seen twice."""


class StartsFile:
    """The file of a workspace. Reading never raises: without a file there are no earlier starts.

    :param readonly: nothing is ever written.
    """

    def __init__(self, workspace: str, readonly: bool = False) -> None:
        self._path = os.path.join(workspace, FILE)
        self._readonly = readonly

    def read(self) -> tuple[PastStart, ...]:
        """The newest starts, the oldest of them first."""
        try:
            with open(open_regular(self._path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - MAX_BYTES))
                data = file.read(MAX_BYTES)
        except OSError:
            return ()
        return history.read_lines(data.decode("utf-8", "replace").splitlines())

    def append(self, start: PastStart) -> None:
        """Adds a start. Several may do so at once; the same start, seen by two watchers, is written once.

        :raises OSError: when it cannot be written.
        """
        if self._readonly:
            return
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o644), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if any(_same(earlier, start) for earlier in self.read()):
                return
            size = os.fstat(file.fileno()).st_size
            line = history.to_line(start).encode("ascii")
            if size + len(line) > MAX_BYTES:
                kept = "".join(map(history.to_line, self.read()[-history.MAX_STARTS + 1 :])).encode("ascii")
                file.truncate(0)
                file.write(kept)
            elif size and not self._ends_whole(file.fileno(), size):
                line = b"\n" + line  # what a crash cut off must not take this one with it
            file.write(line)

    @staticmethod
    def _ends_whole(descriptor: int, size: int) -> bool:
        return os.pread(descriptor, 1, size - 1) == b"\n"


def _same(one: PastStart, other: PastStart) -> bool:
    return one.key == other.key and abs(one.wall - other.wall) < SAME_SECONDS
