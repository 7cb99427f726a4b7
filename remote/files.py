"""Files for a console that fetches them: listing, reading in chunks, hashing. Reads only.

Every answer carries the identity of the file that was read, so that the console notices one that changes under it. The
path that a person names may be a symbolic link; below it none is followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from remote.policy import Policy
from remote.protocol.errors import BAD_ARGUMENT, FAILED, NOT_FOUND, RequestError
from remote.protocol.files import CHUNK_BYTES, FileChunk, FileEntry, FileHash, FileIdentity, FileList

PAGE_ENTRIES = 500
PAGE_BYTES = 150 * 1024
"""Of names in one page: they are ASCII in JSON, and the numbers need room too."""

HASH_SECONDS = 2.0
"""How long one request hashes before it answers how far it came."""

HASH_PIECE_BYTES = 1024 * 1024
HASHES_KEPT = 32
"""Hashes on their way that are remembered, so that the next request goes on where the last one stopped."""

_ENTRY_BYTES = 160  # an entry's numbers in JSON


@dataclass
class _RunningHash:
    identity: FileIdentity
    state: Any = field(default_factory=hashlib.sha256)
    done: int = 0
    digests: dict[int, str] = field(default_factory=dict)  # of what was answered: a lost answer is asked for again
    lock: threading.Lock = field(default_factory=threading.Lock)


class Files:
    """The three operations. All methods may block and be called from any thread.

    :param policy: says what may be read.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._hashes: OrderedDict[str, _RunningHash] = OrderedDict()

    def list(self, path: str, after: Optional[str] = None) -> FileList:
        """A page of the regular files at or below a path.

        :param path: absolute, below the workspace, or beginning with ``~/``.
        :param after: the ``next`` of the page before.
        :raises RequestError: ``not_found``, ``refused`` outside the roots, ``failed`` where something cannot be read.
        """
        root = self._resolve(path)
        try:
            status = os.stat(root, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                return FileList(root, False, (_entry("", status),))
            if not stat.S_ISDIR(status.st_mode):
                raise RequestError(BAD_ARGUMENT, f"{root} is neither a file nor a directory")
            return _page(root, after)
        except OSError as error:
            raise _failed(error.filename or root, error) from None

    def read(self, path: str, offset: int, length: int) -> FileChunk:
        """Bytes of a file.

        :param path: the ``root`` of a list, or a path below it.
        :param length: at most ``CHUNK_BYTES``.
        :raises RequestError: as ``list``.
        """
        if length > CHUNK_BYTES:
            raise RequestError(BAD_ARGUMENT, f"at most {CHUNK_BYTES} bytes at once")
        descriptor = self._open(path)
        try:
            identity = _identity(os.fstat(descriptor))
            data = os.pread(descriptor, length, offset)
        except OSError as error:
            raise _failed(path, error) from None
        finally:
            os.close(descriptor)
        if data and not data.strip(b"\0"):
            return FileChunk(offset, len(data), identity, zeros=len(data))
        return FileChunk(offset, len(data), identity, data=data)

    def hash(self, path: str, length: int) -> FileHash:
        """The hash of the first bytes of a file, as far as ``HASH_SECONDS`` allow; the next request goes on.

        :raises RequestError: as ``list``.
        """
        descriptor = self._open(path)
        try:
            identity = _identity(os.fstat(descriptor))
            running = self._running_hash(path, identity, length)
            with running.lock:
                if length not in running.digests:
                    self._hash_on(descriptor, running, length)
                reached = length if length in running.digests else running.done
                return FileHash(reached, running.digests[reached], _identity(os.fstat(descriptor)))
        except OSError as error:
            raise _failed(path, error) from None
        finally:
            os.close(descriptor)

    def _hash_on(self, descriptor: int, running: _RunningHash, length: int) -> None:
        deadline = self._clock() + HASH_SECONDS
        while running.done < length:
            piece = os.pread(descriptor, min(HASH_PIECE_BYTES, length - running.done), running.done)
            if not piece:
                break  # it has become shorter; its identity says so
            running.state.update(piece)
            running.done += len(piece)
            if self._clock() > deadline:
                break
        running.digests[running.done] = running.state.hexdigest()

    def _running_hash(self, path: str, identity: FileIdentity, length: int) -> _RunningHash:
        with self._lock:
            running = self._hashes.get(path)
            usable = running is not None and running.identity == identity
            if running is None or not usable or (running.done > length and length not in running.digests):
                running = self._hashes[path] = _RunningHash(identity)
            self._hashes.move_to_end(path)
            while len(self._hashes) > HASHES_KEPT:
                self._hashes.popitem(last=False)
            return running

    def _resolve(self, path: str) -> str:
        if path.startswith("~/") or path == "~":
            path = os.path.expanduser(path)
        elif not os.path.isabs(path):
            if not self._policy.workspace:
                raise RequestError(BAD_ARGUMENT, f"{path!r} is not absolute, and the profile names no workspace")
            path = os.path.join(self._policy.workspace, path)
        try:
            os.stat(path)
        except (OSError, ValueError) as error:
            raise _failed(path, error) from None
        root = os.path.realpath(path)
        self._policy.require_readable(root)
        return root

    def _open(self, path: str) -> int:
        """A descriptor of a regular file at exactly this path: no symbolic link on the way, none at the end."""
        if not os.path.isabs(path):
            raise RequestError(BAD_ARGUMENT, f"{path!r} is not absolute")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise _failed(path, error) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RequestError(FAILED, f"{path} is no longer a regular file")
            if os.path.realpath(path) != os.path.normpath(path):
                raise RequestError(FAILED, f"a symbolic link leads to {path} now; list it again")
            self._policy.require_readable(path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def arguments(args: Mapping[str, Any], *numbers: str) -> tuple[str, Sequence[int]]:
    """The path and the whole numbers in the arguments of an operation.

    :raises RequestError: ``bad_argument``.
    """
    path = args.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        raise RequestError(BAD_ARGUMENT, "path must be a text")
    values = []
    for name in numbers:
        value = args.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise RequestError(BAD_ARGUMENT, f"{name} must be a whole number, 0 or more")
        values.append(value)
    return path, values


def _page(root: str, after: Optional[str]) -> FileList:
    entries: list[FileEntry] = []
    left_out, room = 0, PAGE_BYTES
    for relative, status in _walk(root, "", after.split("/") if after else []):
        if not stat.S_ISREG(status.st_mode):
            left_out += 1
            continue
        room -= 6 * len(relative) + _ENTRY_BYTES
        if len(entries) >= PAGE_ENTRIES or (room < 0 and entries):
            return FileList(root, True, tuple(entries), left_out, entries[-1].path)
        entries.append(_entry(relative, status))
    return FileList(root, True, tuple(entries), left_out)


def _walk(folder: str, prefix: str, after: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder but the directories, in the order of the names, from behind ``after`` on."""
    for name in sorted(os.listdir(folder)):
        if after and name < after[0]:
            continue
        same = bool(after) and name == after[0]
        if same and len(after) == 1:
            continue
        path = os.path.join(folder, name)
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(path, f"{prefix}{name}/", after[1:] if same else ())
        else:
            yield prefix + name, status


def _entry(relative: str, status: os.stat_result) -> FileEntry:
    return FileEntry(relative, _identity(status), status.st_blocks * 512)


def _identity(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_size, status.st_mtime_ns, status.st_ino)


def _failed(path: str, error: Exception) -> RequestError:
    if isinstance(error, FileNotFoundError):
        return RequestError(NOT_FOUND, f"there is no {path}")
    return RequestError(FAILED, f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
