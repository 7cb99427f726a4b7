"""Whether the files of a model are whole, from their headers and directories: no torch, microseconds a file.

A safetensors file says in its header where its data ends. ``torch.save`` writes a zip archive, whose directory comes
last, so that a cut one has none. What was never written after a crash, or left out by a sparse copy, shows as a hole.
Nothing is opened that is no regular file, and no symbolic link is followed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
from dataclasses import dataclass
from typing import Any, BinaryIO, Optional

from pipeline.plan.safetensors import HeaderError, header_of

JSON_LIMIT = 64 * 2**20
"""Bytes; a longer JSON file is none of those that we know."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class Probe:
    """What a look at one file found.

    :param problem: what is wrong, a clause with the file's name; empty where it is whole.
    :param missing: it is not there at all.
    :param holes: bytes of its data that were never written.
    """

    problem: str = ""
    missing: bool = False
    holes: int = 0

    @property
    def whole(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Entry:
    """A regular file of a directory, as it was listed. ``stamp`` changes with its content."""

    name: str
    allocated: int
    apparent: int
    modified: float
    stamp: tuple[int, int, int, int, int]


def files(folder: str) -> dict[str, Entry]:
    """The regular files directly in a folder, by name; no symbolic links.

    :raises OSError: when it cannot be listed.
    """
    found = {}
    with os.scandir(folder) as entries:
        for item in entries:
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                found[item.name] = Entry(item.name, status.st_blocks * 512, status.st_size, status.st_mtime, stamp)
    return found


class Probes:
    """Looks at files, and again only where they have changed."""

    LIMIT = 50_000

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Probe] = {}

    def weights(self, folder: str, entry: Optional[Entry], name: str) -> Probe:
        """A safetensors file."""
        return self._probe(folder, entry, name, _weights)

    def archive(self, folder: str, entry: Optional[Entry], name: str) -> Probe:
        """A file that ``torch.save`` wrote."""
        return self._probe(folder, entry, name, _archive)

    def shards(self, folder: str, entries: dict[str, Entry], index: str) -> Probe:
        """Weights in several files: each one that the index names must be there and whole."""
        try:
            names = sorted(set(read_json(os.path.join(folder, index))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return Probe(f"{index} cannot be read")
        missing = [name for name in names if name not in entries]
        if missing or not names:
            return Probe(f"{len(missing)} of {len(names)} shards are missing", missing=True)
        probes = [self.weights(folder, entries[name], name) for name in names]
        broken = next((probe for probe in probes if not probe.whole), None)
        return broken or Probe(holes=sum(probe.holes for probe in probes))

    def _probe(self, folder: str, entry: Optional[Entry], name: str, look: Any) -> Probe:
        if entry is None:
            return Probe(f"{name} is missing", missing=True)
        known = self._known.get(entry.stamp)
        if known is None:
            if len(self._known) >= self.LIMIT:
                self._known.clear()
            known = self._known[entry.stamp] = _look(os.path.join(folder, name), name, look)
        return known


def read_json(path: str) -> Any:
    """The content of a JSON file that is a regular one.

    :raises OSError: when it cannot be read. :raises ValueError: when it is too large or no JSON.
    """
    with open_regular(path) as file:
        data = file.read(JSON_LIMIT + 1)
    if len(data) > JSON_LIMIT:
        raise ValueError(f"{path} is longer than {JSON_LIMIT} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None


def read_text(path: str, limit: int = 2**20) -> str:
    """The beginning of a small text file; empty where it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def open_regular(path: str) -> BinaryIO:
    """The file, open for reading, if it is a regular one and no symbolic link.

    :raises OSError: when it is not, or cannot be opened.
    """
    descriptor = os.open(path, _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return os.fdopen(descriptor, "rb")


def holes(descriptor: int, begin: int, end: int) -> int:
    """Bytes between two offsets that the file system holds no data for; 0 where it cannot tell."""
    total = 0
    place = begin
    try:
        while place < end:
            try:
                data = min(os.lseek(descriptor, place, os.SEEK_DATA), end)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return total + end - place  # no data up to the end
            total += data - place
            place = os.lseek(descriptor, data, os.SEEK_HOLE) if data < end else end
    except OSError:
        return 0
    return total


def _look(path: str, name: str, look: Any) -> Probe:
    try:
        with open_regular(path) as file:
            found: Probe = look(file, name)
            return found
    except FileNotFoundError:
        return Probe(f"{name} is missing", missing=True)
    except OSError as error:
        return Probe(f"{name} cannot be read: {error.strerror or error}")


def _weights(file: BinaryIO, name: str) -> Probe:
    try:
        header = header_of(file, name)
    except HeaderError as error:
        return Probe(str(error))
    begin = min((tensor.begin for tensor in header.tensors.values()), default=0)
    end = max((tensor.end for tensor in header.tensors.values()), default=0)
    status = os.fstat(file.fileno())
    if status.st_blocks * 512 >= status.st_size:
        return Probe()
    return Probe(holes=holes(file.fileno(), begin, end))


def _archive(file: BinaryIO, name: str) -> Probe:
    return Probe() if zipfile.is_zipfile(file) else Probe(f"{name} is cut")
