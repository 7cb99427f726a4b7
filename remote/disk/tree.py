"""Allocated sizes of directory trees, kept between passes so that a refresh looks only at what can have changed.

A directory's modification time changes when a name in it comes, goes or is renamed, and not when a file grows. So the
totals of a directory are kept by (device, inode, mtime, ctime), and its *hot* files (large or recently written) are
looked at again each time. Symbolic links are never followed, other file systems and mounts never entered, and a file
with several names counts once.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional

_BLOCK = 512  # st_blocks counts these, whatever the file system's own block size
HOT_BYTES = 64 * 2**20
HOT_SECONDS = 600.0
_SETTLE_SECONDS = 2.0  # a directory changed this shortly before it was listed may change again within one clock tick
_FOREVER = float("inf")
_MAX_DEPTH = 200  # each level holds a file descriptor open
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Inode = tuple[int, int]


@dataclass(frozen=True)
class FileSize:
    """One file: bytes of its blocks, its length, its modification time in wall seconds."""

    allocated: int
    apparent: int
    modified: float


@dataclass
class _Linked:
    """A file with several names: its bytes, how many of its names the tree holds, and how many there are."""

    allocated: int
    seen: int
    names: int


@dataclass
class TreeTotals:
    """The sum over a tree; ``incomplete`` counts what could not be read, ``symlinks`` are the paths of those in it.

    ``modified`` and ``oldest`` are the newest and the oldest modification time of a file, wall seconds.
    """

    allocated: int = 0
    apparent: int = 0
    files: int = 0
    modified: Optional[float] = None
    incomplete: int = 0
    oldest: Optional[float] = None
    linked: dict[Inode, _Linked] = field(default_factory=dict)
    symlinks: list[str] = field(default_factory=list)

    @property
    def exclusive(self) -> int:
        """The allocated bytes that no name outside the tree shares."""
        return self.allocated - sum(file.allocated for file in self.linked.values() if file.seen < file.names)

    def add(self, size: FileSize) -> None:
        """Counts one file."""
        self.add_many(size.allocated, size.apparent, 1, size.modified, size.modified)

    def add_many(
        self, allocated: int, apparent: int, files: int, modified: Optional[float], oldest: Optional[float]
    ) -> None:
        """Counts several files at once."""
        self.allocated += allocated
        self.apparent += apparent
        self.files += files
        if modified is not None and (self.modified is None or modified > self.modified):
            self.modified = modified
        if oldest is not None and (self.oldest is None or oldest < self.oldest):
            self.oldest = oldest


@dataclass
class _Listing:
    """One directory as it was listed: the sum of its cold files, its hot and its many-named ones, its directories."""

    stamp: tuple[int, int]
    listed: float
    cold: TreeTotals = field(default_factory=TreeTotals)
    hot: dict[str, FileSize] = field(default_factory=dict)
    linked: dict[str, tuple[Inode, FileSize, int]] = field(default_factory=dict)
    symlinks: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)

    def usable(self, status: os.stat_result) -> bool:
        """Whether the directory has the same names now, for certain."""
        return self.stamp == _stamp(status) and self.listed - status.st_mtime > _SETTLE_SECONDS


class TreeSizes:
    """Measures trees and remembers their directories. For one thread.

    ``wants_full`` says that the next pass should be a full one.

    :param pace: called with the number of files just looked at; it may sleep, and may raise to end the pass.
    :param clock: wall seconds.
    """

    def __init__(self, pace: Callable[[int], None], clock: Callable[[], float] = time.time) -> None:
        self._pace = pace
        self._clock = clock
        self._listings: dict[Inode, _Listing] = {}
        self._visited: set[Inode] = set()
        self._linked: set[Inode] = set()
        self._full = True
        self.wants_full = True

    def begin_pass(self, full: bool) -> None:
        """Before the trees of a pass are measured; a full pass trusts nothing that it knows."""
        if full:
            self._listings.clear()
            self._linked.clear()
        self.wants_full = False
        self._full = full
        self._visited.clear()

    def end_pass(self) -> None:
        """Forgets the directories that were not met in this pass."""
        for inode in self._listings.keys() - self._visited:
            del self._listings[inode]

    def measure(self, parent: int, name: str, path: str, mounts: frozenset[str]) -> Optional[TreeTotals]:
        """The totals of the tree ``name`` in the open directory ``parent``; None when it is gone, no directory, or on
        another file system.

        :param path: its absolute path, compared with ``mounts``, the mount points of this host.
        """
        totals = TreeTotals()
        device = os.fstat(parent).st_dev
        return totals if self._enter(parent, name, path, device, mounts, totals, depth=0) else None

    def loose(self, directory: int) -> TreeTotals:
        """The totals of the files directly in an open directory."""
        totals = TreeTotals()
        _add_files(self._list(directory, os.fstat(directory)), totals)
        return totals

    def _enter(
        self, parent: int, name: str, path: str, device: int, mounts: frozenset[str], totals: TreeTotals, depth: int
    ) -> bool:
        if path in mounts:
            return False
        try:
            directory = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):  # gone or replaced since it was listed
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link took its place
                return False
            totals.incomplete += 1
            return True
        try:
            status = os.fstat(directory)
            if status.st_dev != device:
                return False
            listing = self._listing(directory, status)
            _add_files(listing, totals)
            totals.symlinks.extend(f"{path}/{link}" for link in listing.symlinks)
            for child in listing.directories:
                if depth >= _MAX_DEPTH:
                    totals.incomplete += 1
                else:
                    self._enter(directory, child, f"{path}/{child}", device, mounts, totals, depth + 1)
        except OSError:  # a file system that fails in the middle of a listing
            totals.incomplete += 1
        finally:
            os.close(directory)
        return True

    def _listing(self, directory: int, status: os.stat_result) -> _Listing:
        inode = (status.st_dev, status.st_ino)
        self._visited.add(inode)
        known = self._listings.get(inode)
        if known and known.usable(status) and self._renew_hot(directory, known):
            self._pace(len(known.hot) + 1)
            return known
        listing = self._list(directory, status)
        self._listings[inode] = listing
        linked = {of for of, _, _ in listing.linked.values()}
        if not self._full and not linked <= self._linked:
            # A file got a second name here. Where its first one is, it is still kept as a file with one name.
            self.wants_full = True
        self._linked |= linked
        return listing

    def _list(self, directory: int, status: os.stat_result) -> _Listing:
        # Most of a scan is this loop: what is cold is summed in plain numbers.
        now = self._clock()
        listing = _Listing(_stamp(status), now)
        allocated = apparent = files = incomplete = batch = 0
        newest, oldest, recent = -_FOREVER, _FOREVER, now - HOT_SECONDS
        with os.scandir(directory) as entries:
            for entry in entries:
                batch += 1
                if batch == 256:
                    self._pace(batch)
                    batch = 0
                if entry.is_dir(follow_symlinks=False):
                    listing.directories.append(entry.name)
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    incomplete += 1
                    continue
                modified = found.st_mtime
                if found.st_nlink > 1:
                    listing.linked[entry.name] = ((found.st_dev, found.st_ino), _size(found), found.st_nlink)
                elif found.st_size >= HOT_BYTES or modified > recent:
                    listing.hot[entry.name] = _size(found)
                else:
                    files += 1
                    allocated += found.st_blocks
                    apparent += found.st_size
                    if modified > newest:
                        newest = modified
                    if modified < oldest:
                        oldest = modified
                if stat.S_ISLNK(found.st_mode):
                    listing.symlinks.append(entry.name)
        if files:
            listing.cold.add_many(allocated * _BLOCK, apparent, files, newest, oldest)
        listing.cold.incomplete += incomplete
        self._pace(batch)
        return listing

    def _renew_hot(self, directory: int, listing: _Listing) -> bool:
        """Looks at the hot files again; False when one is gone, so that the directory must be listed anew."""
        now = self._clock()
        for name in tuple(listing.hot):
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                return False
            size = _size(status)
            if status.st_nlink > 1 or stat.S_ISDIR(status.st_mode):
                return False
            if _hot(size, now):
                listing.hot[name] = size
            else:
                del listing.hot[name]
                listing.cold.add(size)
        for name, (inode, before, _) in tuple(listing.linked.items()):
            if not _hot(before, now):
                continue
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                return False
            if (status.st_dev, status.st_ino) != inode or status.st_nlink == 1:
                return False
            listing.linked[name] = (inode, _size(status), status.st_nlink)
        return True


def _add_files(listing: _Listing, totals: TreeTotals) -> None:
    cold = listing.cold
    totals.add_many(cold.allocated, cold.apparent, cold.files, cold.modified, cold.oldest)
    totals.incomplete += cold.incomplete
    for size in listing.hot.values():
        totals.add(size)
    for inode, size, names in listing.linked.values():
        known = totals.linked.get(inode)
        if known is None:
            totals.linked[inode] = _Linked(size.allocated, 1, names)
            totals.add(size)
        else:
            known.seen += 1


def _size(status: os.stat_result) -> FileSize:
    return FileSize(status.st_blocks * _BLOCK, status.st_size, status.st_mtime)


def _hot(size: FileSize, now: float) -> bool:
    return size.apparent >= HOT_BYTES or now - size.modified < HOT_SECONDS


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns
