"""The unfinished copy of one file on this machine: written from its beginning to its end, hashed on the way."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

PIECE_BYTES = 1024 * 1024


class LocalFile:
    """A copy that grows. Its blocking methods may be called from any thread, one at a time.

    :ivar position: bytes that are in the file and in the hash.
    :raises OSError: from every method, as the file system says.
    """

    def __init__(self, path: Path, fresh: bool) -> None:
        """
        :param fresh: there must be no such file yet: two names of a host can be one on this file system.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_EXCL if fresh else 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._lock = threading.Lock()
        self._hash: Any = hashlib.sha256()
        self._closed = False
        self.position = 0

    @property
    def size(self) -> int:
        """Bytes in the file, hashed or not."""
        return os.fstat(self._descriptor).st_size

    def digest(self) -> str:
        """SHA-256 of the first ``position`` bytes, in hexadecimal."""
        digest: str = self._hash.copy().hexdigest()
        return digest

    def append(self, data: bytes) -> None:
        """Writes and hashes the next bytes."""
        with self._lock:
            if self._closed:
                return  # a cancelled transfer's last piece
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self._descriptor, view, self.position + len(data) - len(view)) :]
            self._hash.update(data)
            self.position += len(data)

    def append_hole(self, count: int) -> None:
        """The next ``count`` bytes are zeros, which take no room."""
        with self._lock:
            if self._closed:
                return
            os.ftruncate(self._descriptor, self.position + count)
            self._hash.update(bytes(count))
            self.position += count

    def digest_with(self, count: int) -> tuple[str, Any]:
        """The digest, and the hash itself, of the file with ``count`` more of the bytes that it already holds."""
        state, offset, end = self._hash.copy(), self.position, self.position + count
        while offset < end:
            data = os.pread(self._descriptor, min(PIECE_BYTES, end - offset), offset)
            if not data:
                break
            state.update(data)
            offset += len(data)
        return state.hexdigest(), state

    def keep(self, count: int, state: Any) -> None:
        """Takes over ``count`` bytes that ``digest_with`` has hashed and that are right."""
        self._hash = state
        self.position += count

    def cut(self) -> None:
        """Throws away what lies behind ``position``."""
        os.ftruncate(self._descriptor, self.position)

    def finish(self, mtime_ns: int) -> None:
        """Makes it durable and gives it the time of the original."""
        os.fsync(self._descriptor)
        os.utime(self._descriptor, ns=(mtime_ns, mtime_ns))

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)
