"""What exactly lies at a path: every entry with its inode, in the order of the names, as one fingerprint.

The walk goes by descriptors, follows no symbolic link and crosses no mount. Change times are part of the fingerprint,
because a forged modification time or an edit that keeps the size does not hide from them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from remote.disk.syscalls import READ_DIRECTORY, Syscalls

_BLOCK = 512  # st_blocks counts these
_MAX_DEPTH = 200  # each level holds a descriptor open
FOREIGN_NAMES = frozenset({".eagle_trash", ".eagle_console"})
"""Directories of a workspace; a tree that holds them is somebody's workspace."""

Inode = tuple[int, int]
Visit = Callable[[int, str, str, os.stat_result], None]


class Unmovable(Exception):
    """A tree that must not be moved. The message is a sentence without its point.

    :param rule: the guard's stable name, such as ``mount_inside``.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@dataclass(frozen=True)
class Link:
    """An inode with several names: how many there are, how many of them were met, and its bytes on disk."""

    names: int
    met: int
    allocated: int


@dataclass(frozen=True)
class Manifest:
    """A tree as it was found.

    :param fingerprint: over everything: type, mode, device, inode, links, size, blocks, both times of every entry.
    :param body: the same without the change time of the tree's own root, which a rename sets.
    :param content: over names, types, inodes, sizes and modification times alone: it survives the coming and going of
        other hard links.
    :param allocated: bytes on disk, each inode once.
    """

    device: int
    inode: int
    directory: bool
    fingerprint: str
    body: str
    content: str
    allocated: int
    apparent: int
    files: int
    linked: Mapping[Inode, Link]

    @property
    def exclusive(self) -> int:
        """Bytes that no name outside the tree shares."""
        return exclusive(self.allocated, self.linked)


def exclusive(allocated: int, linked: Mapping[Inode, Link]) -> int:
    """Of ``allocated``, the bytes of inodes all of whose names were met."""
    return allocated - sum(link.allocated for link in linked.values() if link.met < link.names)


def merged(maps: list[Mapping[Inode, Link]]) -> dict[Inode, Link]:
    """The names met in several trees, counted together."""
    together: dict[Inode, Link] = {}
    for links in maps:
        for inode, link in links.items():
            met = together[inode].met if inode in together else 0
            together[inode] = Link(link.names, met + link.met, link.allocated)
    return together


def walk(calls: Syscalls, parent: int, name: str, visit: Visit) -> None:
    """Visits an entry of an open directory and, where it is a directory, everything below it in the order of the names.

    ``visit`` gets the open directory, the name in it, the path below the tree's root (empty for the root itself) and
    the status of each entry.

    :raises Unmovable: at a mount, a change of the device, a directory that is too deep or cannot be read.
    :raises OSError: as the file system answers.
    """
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    visit(parent, name, "", status)
    if stat.S_ISDIR(status.st_mode):
        _walk_directory(calls, parent, name, "", status, visit, 0)


def scan(calls: Syscalls, parent: int, name: str, owner: int) -> Manifest:
    """The manifest of an entry of an open directory.

    :param owner: the only user id whose files may be moved.
    :raises Unmovable: where something in it forbids moving it.
    :raises OSError: as the file system answers.
    """
    found = _Found(owner)
    walk(calls, parent, name, found.visit)
    return found.manifest()


class _Found:
    """Adds up the entries of a walk."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._root: Optional[os.stat_result] = None
        self._body, self._content = hashlib.sha256(), hashlib.sha256()
        self._allocated = self._apparent = self._files = 0
        self._linked: dict[Inode, Link] = {}

    def visit(self, directory: int, name: str, relative: str, status: os.stat_result) -> None:
        root = self._root
        if root is None:
            self._root = root = status
        _check(status, root, relative, self._owner)
        places = (status.st_mode, status.st_uid, status.st_dev, status.st_ino, status.st_nlink)
        ctime = status.st_ctime_ns if relative else 0
        _feed(self._body, relative, (*places, status.st_size, status.st_blocks, status.st_mtime_ns, ctime))
        kind = stat.S_IFMT(status.st_mode)
        _feed(self._content, relative, (kind, status.st_ino, status.st_size, status.st_mtime_ns))
        if kind == stat.S_IFDIR:
            self._allocated += status.st_blocks * _BLOCK
            return
        self._files += 1
        self._apparent += status.st_size
        self._count(status)

    def _count(self, status: os.stat_result) -> None:
        allocated = status.st_blocks * _BLOCK
        if status.st_nlink > 1:
            inode = (status.st_dev, status.st_ino)
            before = self._linked.get(inode)
            self._linked[inode] = Link(status.st_nlink, before.met + 1 if before else 1, allocated)
            if before:
                return
        self._allocated += allocated

    def manifest(self) -> Manifest:
        root = self._root
        assert root is not None
        body = self._body.hexdigest()
        return Manifest(
            device=root.st_dev,
            inode=root.st_ino,
            directory=stat.S_ISDIR(root.st_mode),
            fingerprint=hashlib.sha256(f"{body} {root.st_ctime_ns}".encode()).hexdigest(),
            body=body,
            content=self._content.hexdigest(),
            allocated=self._allocated,
            apparent=self._apparent,
            files=self._files,
            linked=self._linked,
        )


def _walk_directory(
    calls: Syscalls, parent: int, name: str, relative: str, expected: os.stat_result, visit: Visit, depth: int
) -> None:
    shown = relative or name
    if depth >= _MAX_DEPTH:
        raise Unmovable("too_deep", f"{shown} is nested deeper than {_MAX_DEPTH} directories")
    try:
        directory = calls.open_beneath(parent, name, READ_DIRECTORY)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise Unmovable("mount_inside", f"something is mounted at {shown}") from None
        raise
    try:
        status = os.fstat(directory)
        if (status.st_dev, status.st_ino) != (expected.st_dev, expected.st_ino):
            raise Unmovable("changed", f"{shown} is being replaced")
        for child in sorted(os.listdir(directory), key=os.fsencode):
            path = f"{relative}/{child}" if relative else child
            child_status = os.stat(child, dir_fd=directory, follow_symlinks=False)
            visit(directory, child, path, child_status)
            if stat.S_ISDIR(child_status.st_mode):
                _walk_directory(calls, directory, child, path, child_status, visit, depth + 1)
    finally:
        os.close(directory)


def _check(status: os.stat_result, root: os.stat_result, relative: str, owner: int) -> None:
    where = relative or "it"
    if status.st_dev != root.st_dev:
        raise Unmovable("mount_inside", f"{where} lies on another file system or subvolume")
    if status.st_uid != owner:
        raise Unmovable("foreign_owner", f"{where} belongs to the user {status.st_uid}, not to {owner}")
    mode = status.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise Unmovable("special_file", f"{where} is a socket, a pipe or a device, whose use cannot be proven")
    if relative.rpartition("/")[2] in FOREIGN_NAMES:
        raise Unmovable("workspace_inside", f"{where} belongs to another workspace")


def _feed(digest: Any, relative: str, numbers: tuple[int, ...]) -> None:
    digest.update(os.fsencode(relative) + b"\0" + " ".join(map(str, numbers)).encode("ascii") + b"\n")
