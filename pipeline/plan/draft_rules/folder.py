"""Where a draft's files are: their names, their sizes, and pieces of them. Whole weights are never read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Optional, Protocol


class Folder(Protocol):
    """A folder of files. Its methods raise OSError."""

    @property
    def path(self) -> str:
        """Its absolute path on its own host, as it was given."""

    def names(self) -> list[str]:
        """The names of the files right in it, sorted."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on; fewer at the file's end."""

    def exists(self, path: str) -> bool:
        """Whether a folder of this absolute path is on the same host."""


class LocalFolder:
    """A folder of this machine. Links of its files are followed: the hub's cache is made of them.

    :param allowed: is called with the real path of each file before it is read, and raises where that may not be.
    """

    def __init__(self, path: str, allowed: Optional[Callable[[str], None]] = None) -> None:
        self._path = os.path.abspath(path)
        self._allowed = allowed
        self.bytes_read = 0

    @property
    def path(self) -> str:
        return self._path

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self._path) if os.path.isfile(os.path.join(self._path, name)))

    def size(self, name: str) -> int:
        return os.stat(self._real(name)).st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        with open(self._real(name), "rb") as file:
            file.seek(offset)
            data = file.read(length)
        self.bytes_read += len(data)
        return data

    def exists(self, path: str) -> bool:
        return os.path.isdir(path)

    def _real(self, name: str) -> str:
        real = os.path.realpath(os.path.join(self._path, name))
        if self._allowed is not None:
            self._allowed(real)
        return real
