"""Files of the host as ``get`` reads them (operations ``list_files``, ``read_file`` and ``hash_file``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

CHUNK_BYTES = 184 * 1024
"""The most of a file in one answer: as base64 and with its other fields it stays below the limit of a frame."""


@dataclass(frozen=True)
class FileIdentity:
    """What tells that a file is still the same one with the same contents. ``mtime_ns`` is in nanoseconds.

    The number of the device is not part of it: it changes when a host mounts its disks again.
    """

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class FileEntry:
    """A regular file below a listed path.

    :param path: relative to the listed path, with slashes; empty when the listed path is the file itself.
    :param allocated: bytes on the host's disk, fewer than the size where the file has holes.
    """

    path: str
    identity: FileIdentity
    allocated: int


@dataclass(frozen=True)
class FileList:
    """One page of the files below ``root``, in the order of their names.

    :param root: the listed path with every symbolic link resolved; the other operations take paths below it.
    :param directory: whether it is a directory; else the one entry is the file itself.
    :param left_out: symbolic links and special files of this page, which are not fetched.
    :param next: where the next page begins (argument ``after``); None at the end.
    """

    root: str
    directory: bool
    entries: tuple[FileEntry, ...] = ()
    left_out: int = 0
    next: Optional[str] = None


@dataclass(frozen=True)
class FileChunk:
    """``length`` bytes of a file from ``offset`` on, fewer than asked for only at its end.

    They are in ``data``; where all of them are zero, ``zeros`` counts them instead.
    """

    offset: int
    length: int
    identity: FileIdentity
    data: bytes = b""
    zeros: int = 0


@dataclass(frozen=True)
class FileHash:
    """The SHA-256 of the first ``length`` bytes, in hexadecimal.

    An agent hashes for a bounded time: where ``length`` is less than what was asked for, asking again goes on.
    """

    length: int
    sha256: str
    identity: FileIdentity
