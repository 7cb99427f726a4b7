"""Moves between the workspace and its trash. Each is one rename that replaces nothing and is verified by the inode.

The trash is ``<workspace>/.eagle_trash``, for its owner alone, on the workspace's own mount. The things in it lie side
by side under opaque names, so that a full disk need not hold another directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from remote import procfs
from remote.disk import idleness, manifest
from remote.disk.ground import Ground
from remote.disk.manifest import Unmovable
from remote.disk.receipts import Move
from remote.disk.syscalls import Unsupported
from remote.protocol.errors import RequestError

_PUT_BACK_TRIES = 20

FAILURES = (Unmovable, RequestError, OSError, Unsupported)
"""What a move raises where a thing stays where it is."""

NOWHERE = "nowhere"
PLACE = "place"
TRASH = "trash"
ELSE = "else"


class Trash:
    """The opened trash of a workspace, for moves into it and out of it.

    :param boot: the boot in which the receipt was made: device numbers hold only as long.
    :raises RequestError: as ``Ground.trash``.
    """

    def __init__(self, ground: Ground, create: bool, boot: str) -> None:
        self._ground = ground
        self._same_boot = boot == procfs.boot_id()
        self._parents: dict[tuple[int, int], int] = {}
        self.descriptor = ground.trash(create)

    def __enter__(self) -> Trash:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        for descriptor in self._parents.values():
            os.close(descriptor)

    def take_in(self, move: Move) -> None:
        """Moves one thing of the workspace into the trash: exactly the inode and content that were planned, and only
        while nobody uses it.

        :raises Unmovable, RequestError, OSError: where it stays where it is, and why.
        """
        with self._parent_of(move) as (parent, name):
            _expect(os.stat(name, dir_fd=parent, follow_symlinks=False), move)
            with idleness.idle(self._ground, parent, name, move.source, move.files):
                tree = manifest.scan(self._ground.calls, parent, name, os.geteuid())
                if tree.fingerprint != move.fingerprint:
                    raise Unmovable("changed", "it has changed since it was planned: a file came, went or was written")
                self._rename_in(parent, name, move)
                if not idleness.stays_leased(move.files):
                    self._look_again(parent, name, move)
            self._remember(parent)

    def put_back(self, move: Move) -> None:
        """Moves one thing back to its place, where the name must be free.

        :raises Unmovable, RequestError, OSError: where it stays in the trash, and why.
        """
        if not self._holds(move):
            raise Unmovable("lost", "it is no longer in the trash as what was moved there")
        with self._parent_of(move) as (parent, name):
            try:
                self._ground.calls.rename(self.descriptor, move.name, parent, name)
            except FileExistsError:
                raise Unmovable("taken", "something else has its name now, and nothing is overwritten") from None
            self._remember(parent)

    def take_again(self, move: Move) -> None:
        """Moves one thing that was just put back into the trash again, since another one of its item cannot be.

        :raises Unmovable, RequestError, OSError: where that fails.
        """
        with self._parent_of(move) as (parent, name):
            self._rename_in(parent, name, move)

    def where(self, move: Move) -> str:
        """Where a thing is now: ``PLACE``, ``TRASH``, ``NOWHERE``, or ``ELSE`` where another thing lies under its name
        in the trash."""
        if self._holds(move):
            return TRASH
        with contextlib.suppress(OSError):
            os.stat(move.name, dir_fd=self.descriptor, follow_symlinks=False)
            return ELSE
        try:
            with self._parent_of(move) as (parent, name):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                return PLACE if self._same(status, move) else NOWHERE
        except (OSError, RequestError):
            return NOWHERE

    def check_in_trash(self, move: Move) -> None:
        """Whether what lies in the trash is what was planned and idle: for a move that was cut short before this was
        known.

        :raises Unmovable, OSError: where it is not.
        """
        with idleness.idle(self._ground, self.descriptor, move.name, f".eagle_trash/{move.name}", move.files):
            tree = manifest.scan(self._ground.calls, self.descriptor, move.name, os.geteuid())
        if tree.body != move.body:
            raise Unmovable("changed", "it was changed while it was moved")

    def return_foreign(self, move: Move) -> None:
        """Puts back whatever lies under a move's name in the trash: it was taken in by a race and is not ours.

        :raises Unmovable, RequestError, OSError: where that fails.
        """
        with self._parent_of(move) as (parent, name):
            self._ground.calls.rename(self.descriptor, move.name, parent, name)
            self._remember(parent)

    def sync(self) -> str:
        """Makes the moves so far durable; why it could not, or nothing."""
        problem = ""
        for descriptor in (*self._parents.values(), self.descriptor):
            try:
                self._ground.calls.fsync(descriptor)
            except OSError as error:
                problem = f"moved, but not yet safe against a power cut: {error.strerror}"
        return problem

    def _rename_in(self, parent: int, name: str, move: Move) -> None:
        try:
            self._ground.calls.rename(parent, name, self.descriptor, move.name)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise Unmovable(
                    "mount_inside", "it cannot be moved without copying: another mount, subvolume or quota project"
                ) from None
            raise
        status = os.stat(move.name, dir_fd=self.descriptor, follow_symlinks=False)
        if not self._same(status, move):
            self._give_back(parent, name, move)
            raise Unmovable(
                "replaced", "another thing took its name in the moment of the move; that is back in its place"
            )

    def _look_again(self, parent: int, name: str, move: Move) -> None:
        """A large tree is not leased as a whole: who came in between is seen now, when nobody can come by its path."""
        try:
            self.check_in_trash(move)
        except (Unmovable, OSError):
            self._give_back(parent, name, move)
            raise

    def _give_back(self, parent: int, name: str, move: Move) -> None:
        """Undoes a rename at once; whoever plays with the name can be in the way for a moment."""
        for _ in range(_PUT_BACK_TRIES):
            try:
                self._ground.calls.rename(self.descriptor, move.name, parent, name)
                return
            except FileExistsError:
                continue
            except (OSError, Unsupported):
                break
        raise Unmovable(
            "replaced", f"another thing took its name in the moment of the move, and lies in the trash as {move.name}"
        )

    def _holds(self, move: Move) -> bool:
        try:
            return self._same(os.stat(move.name, dir_fd=self.descriptor, follow_symlinks=False), move)
        except OSError:
            return False

    def _same(self, status: os.stat_result, move: Move) -> bool:
        return status.st_ino == move.inode and (not self._same_boot or status.st_dev == move.device)

    @contextlib.contextmanager
    def _parent_of(self, move: Move) -> Iterator[tuple[int, str]]:
        parent, name = self._ground.parent(move.source)
        try:
            yield parent, name
        finally:
            os.close(parent)

    def _remember(self, parent: int) -> None:
        """A directory to make durable at the end."""
        status = os.fstat(parent)
        inode = (status.st_dev, status.st_ino)
        if inode not in self._parents:
            self._parents[inode] = os.dup(parent)


def explained(error: Exception) -> str:
    """Why a thing was not moved, as a sentence without its point."""
    if isinstance(error, RequestError):
        return error.message
    if isinstance(error, OSError):
        return f"it cannot be moved: {error.strerror or error}"
    return str(error)


def _expect(status: os.stat_result, move: Move) -> None:
    if (status.st_dev, status.st_ino) != (move.device, move.inode):
        raise Unmovable("replaced", "it is not what was planned any more: something else has its name")
