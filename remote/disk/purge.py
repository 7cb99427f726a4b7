"""Purge: what lies in the trash is unlinked for good, gently, and what that freed is measured.

Only what was moved there is unlinked: before the first unlink its names, inodes, sizes and modification times are
compared with the plan's. The walk goes by descriptors and crosses no mount.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Optional

from remote.disk import manifest
from remote.disk.commit import ended
from remote.disk.ground import Ground
from remote.disk.manifest import Unmovable
from remote.disk.receipts import EVENT_BEGUN, PURGE, Entry, Outcome, Standing, Step
from remote.disk.syscalls import READ_DIRECTORY, Syscalls
from remote.disk.trash import FAILURES, NOWHERE, PLACE, TRASH, Trash, explained
from remote.journal import Journal
from remote.protocol import trash
from remote.protocol.trash import Freed

_BATCH = 256
_REST_SECONDS = 0.002  # after each batch, so that training's own reads and writes come through
_GAP = 0.02  # of the unlinked bytes; a smaller difference needs no explanation
_GAP_BYTES = 1024 * 1024


def begin(ground: Ground, journal: Journal, standing: Standing, requested_by: str) -> Standing:
    """Announces a purge; from here on the receipt cannot be undone. The caller holds both locks.

    Of what has never been purged, only what is still exactly what was moved goes on.

    :raises RequestError: ``failed`` where the journal cannot be written.
    """
    with Trash(ground, create=False, boot=standing.line.boot_id) as bin_:
        outcomes = tuple(
            _checked(ground, bin_, entry) if outcome.state == trash.TRASHED else outcome
            for entry, outcome in zip(standing.intent.entries, standing.outcomes)
        )
    text = f"about to unlink what {standing.id} has in the trash"
    size = standing.allocated
    journal.append(PURGE, text, requested_by, standing.id, size=size, event=EVENT_BEGUN, data=Step(PURGE, outcomes))
    return replace(standing, outcomes=outcomes, cut=PURGE)


def finish(
    ground: Ground,
    journal: Journal,
    standing: Standing,
    requested_by: str,
    rest: Callable[[float], None] = time.sleep,
) -> Standing:
    """Unlinks what ``begin`` announced; the caller holds the purge's lock. What fails can be tried again."""
    with Trash(ground, create=False, boot=standing.line.boot_id) as bin_:
        before = _free_bytes(ground)
        unlinking = _Unlinking(ground.calls, rest)
        outcomes = tuple(
            _unlink(bin_, unlinking, entry) if outcome.state == trash.PURGING else outcome
            for entry, outcome in zip(standing.intent.entries, standing.outcomes)
        )
        bin_.sync()
        after = _free_bytes(ground)
    measured = after - before if after is not None and before is not None else None
    freed = _freed(standing.freed, unlinking, measured)
    return ended(journal, replace(standing, outcomes=outcomes, freed=freed, cut=""), PURGE, requested_by)


@dataclass
class _Unlinking:
    """Removes trees and counts what that takes away."""

    calls: Syscalls
    rest: Callable[[float], None]
    unlinked: int = 0
    shared: int = 0
    _count: int = field(default=0)

    def remove(self, parent: int, name: str, inode: int) -> None:
        """Removes an entry of an open directory, with everything below it.

        :raises Unmovable: at a mount, or where the entry is not the inode that is meant.
        :raises OSError: as the file system answers.
        """
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if status.st_ino != inode:
            raise Unmovable("replaced", f"{name} is not what was moved into the trash")
        if not stat.S_ISDIR(status.st_mode):
            self.calls.unlink(parent, name)
            self._took(status, name_was_last=status.st_nlink == 1)
            return
        directory = self._open(parent, name, inode)
        try:
            with os.scandir(directory) as entries:
                children = [(entry.name, entry.inode()) for entry in entries]
            for child, child_inode in children:
                self.remove(directory, child, child_inode)
        finally:
            os.close(directory)
        self.calls.rmdir(parent, name)
        self._took(status, name_was_last=True)

    def _open(self, parent: int, name: str, inode: int) -> int:
        directory = self.calls.open_beneath(parent, name, READ_DIRECTORY)
        status = os.fstat(directory)
        if status.st_ino != inode:
            os.close(directory)
            raise Unmovable("replaced", f"{name} is being replaced")
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(directory, 0o700)  # a directory that its owner may not write cannot be emptied
        return directory

    def _took(self, status: os.stat_result, name_was_last: bool) -> None:
        allocated = status.st_blocks * 512
        if name_was_last:
            self.unlinked += allocated
        else:
            self.shared += allocated
        self._count += 1
        if self._count % _BATCH == 0:
            self.rest(_REST_SECONDS)


def _checked(ground: Ground, bin_: Trash, entry: Entry) -> Outcome:
    """Whether an item in the trash is still what was moved there."""
    try:
        for move in entry.moves:
            where = bin_.where(move)
            if where in (PLACE, NOWHERE):
                continue
            tree = manifest.scan(ground.calls, bin_.descriptor, move.name, os.geteuid())
            if where != TRASH or tree.content != move.content:
                return Outcome(trash.TRASHED, "it has changed in the trash, so it is not unlinked; undo it and look")
    except FAILURES as error:
        return Outcome(trash.TRASHED, f"it cannot be unlinked: {explained(error)}")
    return Outcome(trash.PURGING)


def _unlink(bin_: Trash, unlinking: _Unlinking, entry: Entry) -> Outcome:
    try:
        for move in entry.moves:
            if bin_.where(move) == TRASH:
                unlinking.remove(bin_.descriptor, move.name, move.inode)
    except FAILURES as error:
        return Outcome(trash.PURGING, f"not all of it could be unlinked: {explained(error)}")
    return Outcome(trash.PURGED)


def _free_bytes(ground: Ground) -> Optional[int]:
    """Free bytes of the file system once everything is written back; None where that cannot be known."""
    try:
        ground.calls.syncfs(ground.descriptor)
        status = os.fstatvfs(ground.descriptor)
    except OSError:
        return None
    return status.f_bfree * status.f_frsize


def _freed(before: Freed, unlinking: _Unlinking, measured: Optional[int]) -> Freed:
    """The three sizes; those of a purge that goes on are added to what it did before."""
    unlinked = (before.unlinked or 0) + unlinking.unlinked
    filesystem = None if measured is None else (before.filesystem or 0) + measured
    return Freed(before.planned, unlinked, filesystem, _gap(unlinked, filesystem, unlinking.shared))


def _gap(unlinked: int, filesystem: Optional[int], shared: int) -> str:
    """Why the sizes differ, as sentences; empty where they agree."""
    notes = []
    if shared:
        notes.append(f"{shared} bytes stay in use by other hard links.")
    if filesystem is None:
        notes.append("The free space of the file system could not be measured.")
    elif unlinked - filesystem > max(_GAP_BYTES, unlinked * _GAP):
        notes.append(
            "The file system freed less than was unlinked: other programs wrote meanwhile, or snapshots, reflinks or "
            "open files still hold the blocks."
        )
    elif filesystem - unlinked > max(_GAP_BYTES, unlinked * _GAP):
        notes.append("The file system freed more than was unlinked: other programs freed space meanwhile.")
    return " ".join(notes)
