"""Proof that nobody uses a tree: kernel leases on its files, and what /proc shows of local processes.

A lease is granted only while nobody else has the file open or mapped. While it is held, whoever opens the file waits;
so leases are held for milliseconds, and on a large tree taken and given back in batches.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Optional

from remote import procfs
from remote.disk import manifest
from remote.disk.ground import Ground
from remote.disk.syscalls import READ_FILE, Syscalls
from remote.protocol.artifacts import PROOF_KERNEL, PROOF_LOCAL

HELD_FILES = 256
"""A tree of at most so many files is leased as a whole while it is moved; more would make openers wait too long."""

_OPEN = READ_FILE | os.O_NOATIME


class InUse(manifest.Unmovable):
    """Somebody has a file open or mapped, or its use cannot be proven."""


class Leases:
    """Write leases on the files of a tree. Closing their descriptors gives them back.

    :param keep: how many are held at once; the older ones go first.
    """

    def __init__(self, calls: Syscalls, keep: int) -> None:
        self._calls = calls
        self._keep = keep
        self._held: list[int] = []

    def take(self, directory: int, name: str, relative: str, status: os.stat_result) -> None:
        """Leases one file; a visit of ``manifest.walk``.

        :raises InUse: where that is refused.
        """
        if not stat.S_ISREG(status.st_mode):
            return
        shown = relative or name
        if len(self._held) >= self._keep:
            self.release()
        try:
            descriptor = self._calls.open_beneath(directory, name, _OPEN)
        except OSError as error:
            raise _cannot_open(shown, error) from None
        self._held.append(descriptor)
        try:
            self._calls.lease(descriptor)
        except OSError as error:
            raise self._refused(descriptor, shown, error) from None

    def release(self) -> None:
        """Gives all of them back."""
        while self._held:
            os.close(self._held.pop())

    def _refused(self, descriptor: int, shown: str, error: OSError) -> InUse:
        if error.errno != errno.EAGAIN:
            return InUse("unproven", f"the use of {shown} cannot be proven ({error.strerror})")
        try:
            self._calls.read_lease(descriptor)
        except OSError:
            return InUse("being_written", f"{shown} is being written: a process has it open for writing (kernel lease)")
        return InUse("in_use", f"{shown} is in use: a process has it open or mapped (kernel lease)")


@contextlib.contextmanager
def leased(calls: Syscalls, parent: int, name: str, files: int) -> Iterator[None]:
    """Proves by leases that a tree is idle, and keeps a small one so for as long as the context lasts.

    :param files: how many files it has.
    :raises InUse: where it is not idle, or that cannot be proven.
    """
    leases = Leases(calls, HELD_FILES)
    try:
        manifest.walk(calls, parent, name, leases.take)
        if files > HELD_FILES:
            leases.release()
        yield
    finally:
        leases.release()


def stays_leased(files: int) -> bool:
    """Whether a tree of so many files is leased as a whole while it is moved."""
    return files <= HELD_FILES


@contextlib.contextmanager
def idle(ground: Ground, parent: int, name: str, relative: str, files: int) -> Iterator[None]:
    """Proves that a tree is idle as strongly as its file system allows, and keeps a small one so while it lasts.

    :param relative: where it lies below the workspace, for what /proc tells.
    :raises InUse: as ``leased``, and where a process of this machine is seen to use it.
    """
    proof = ground.filesystem.proof
    if proof.strength != PROOF_KERNEL:
        user = local_user(os.path.join(ground.real, relative))
        if user:
            raise InUse("in_use", user)
    if proof.strength == PROOF_LOCAL:  # there a lease says nothing: a client without a delegation never gets one
        yield
        return
    with leased(ground.calls, parent, name, files):
        yield


def local_user(path: str) -> Optional[str]:
    """Who on this machine has something at or below a path open, mapped or as its folder, as a sentence without its
    point; None where nobody is seen to. Processes of other users show nothing to anybody but root."""
    inside = path.rstrip("/") + "/"
    for pid in procfs.table():
        if pid == os.getpid():
            continue
        for held in _held_by(pid):
            if held == path or held.startswith(inside):
                name = procfs.command_line(pid) or "?"
                return f"{held} is in use by process {pid} ({name[:80]})"
    return None


def _held_by(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}"
    for link in ("cwd", "exe"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"{folder}/{link}")
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{folder}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/fd/{name}")
    with contextlib.suppress(OSError), open(f"{folder}/maps", errors="surrogateescape") as maps:
        for line in maps:
            start = line.find("/")
            if start >= 0:
                yield line[start:].rstrip("\n")


def _cannot_open(shown: str, error: OSError) -> InUse:
    if error.errno == errno.EXDEV:
        return InUse("mount_inside", f"something is mounted at {shown}")
    if error.errno == errno.EAGAIN:
        return InUse("in_use", f"{shown} is in use: another program holds a lease on it")
    return InUse("unproven", f"the use of {shown} cannot be proven: it cannot be opened ({error.strerror})")
