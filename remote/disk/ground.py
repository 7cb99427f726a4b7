"""The workspace as the ground that deletion stands on: opened once, known by its inode and mount, never by its path."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Optional

from remote.disk import filesystems
from remote.disk.filesystems import Filesystem
from remote.disk.syscalls import READ_DIRECTORY, Syscalls, Unsupported, mount_id
from remote.protocol.errors import FAILED, NOT_FOUND, REFUSED, RequestError

STATE = ".eagle_console"
TRASH = ".eagle_trash"

_RUN_MARKS = frozenset(
    {"checkpoint_best", "run.yaml", "train_command.txt", "training_state.json", "trainer_state.json"}
)
"""A directory with one of these is a run's own; trainers delete what they do not know in it."""


@dataclass(frozen=True)
class RootId:
    """What a plan is bound to beside host and boot: the workspace's device, inode and mount."""

    device: int
    inode: int
    mount: int


class Ground:
    """An opened workspace. A context manager; all its descriptors are closed at the end.

    :param workspace: its path as the profile names it.
    :raises RequestError: ``refused`` where nothing can be deleted safely there, ``failed`` where it cannot be opened.
    """

    def __init__(self, calls: Syscalls, workspace: Optional[str]) -> None:
        if not workspace:
            raise RequestError(REFUSED, "nothing can be deleted: the profile names no workspace")
        self.calls = calls
        self.workspace = workspace.rstrip("/") or "/"
        self.real = os.path.realpath(workspace)
        if self.real == "/":
            raise RequestError(REFUSED, "nothing is deleted in a workspace that is the root of the file system")
        try:
            self.descriptor = os.open(self.real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise RequestError(FAILED, f"the workspace {workspace} cannot be opened: {error.strerror}") from None
        try:
            status = os.fstat(self.descriptor)
            self.id = RootId(status.st_dev, status.st_ino, mount_id(self.descriptor))
            self.filesystem: Filesystem = filesystems.filesystem(self.id.mount)
        except Unsupported as error:
            os.close(self.descriptor)
            raise refused(error) from None

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def names(self) -> tuple[str, str]:
        """The workspace's paths: as the profile names it, and resolved."""
        return self.workspace, self.real

    def shown(self, relative: str) -> str:
        """The absolute path of something below the workspace, as a person would write it."""
        return os.path.join(self.workspace, relative)

    def parent(self, relative: str) -> tuple[int, str]:
        """The open directory that holds a path below the workspace, for the caller to close, and the name in it.

        :raises RequestError: ``refused`` at a symbolic link or a mount on the way, or where something is gone.
        """
        folder, _, name = relative.rpartition("/")
        try:
            if not folder:
                return os.dup(self.descriptor), name
            return self.calls.open_beneath(self.descriptor, folder, READ_DIRECTORY), name
        except OSError as error:
            raise RequestError(REFUSED, f"{self.shown(relative)} {_on_the_way(error)}") from None
        except Unsupported as error:
            raise refused(error) from None

    def trash(self, create: bool) -> int:
        """The open trash folder of the workspace, for the caller to close.

        :raises RequestError: ``not_found``, or ``refused`` where it is not ours alone and on the same mount.
        """
        if create and _RUN_MARKS.intersection(os.listdir(self.descriptor)):
            raise RequestError(
                REFUSED,
                f"the workspace {self.workspace} is a run directory, and trainers remove what they do not know in it",
                "name the folder above it as the workspace",
            )
        return self._own_folder(TRASH, create)

    def state(self, create: bool) -> int:
        """The open folder that holds the journal, for the caller to close.

        :raises RequestError: as ``trash``.
        """
        return self._own_folder(STATE, create)

    def _own_folder(self, name: str, create: bool) -> int:
        where = self.shown(name)
        try:
            if create:
                try:
                    self.calls.mkdir(self.descriptor, name)
                    self.calls.fsync(self.descriptor)
                except FileExistsError:
                    pass
            descriptor = self.calls.open_beneath(self.descriptor, name, READ_DIRECTORY)
        except FileNotFoundError:
            raise RequestError(NOT_FOUND, f"there is no {where}") from None
        except OSError as error:
            raise RequestError(REFUSED, f"{where} cannot be used: {error.strerror}") from None
        except Unsupported as error:
            raise refused(error) from None
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH or status.st_dev != self.id.device:
            os.close(descriptor)
            raise RequestError(REFUSED, f"{where} is not ours alone: it belongs to the user {status.st_uid}")
        mode = 0o700 if name == TRASH else 0o755
        if create and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
        return descriptor


def refused(error: Exception) -> RequestError:
    """The answer to a console where the host lacks something or a tree must not be moved."""
    return RequestError(REFUSED, f"nothing was changed: {error}")


def _on_the_way(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "cannot be reached: a symbolic link or a file lies on the way, and none is followed"
    if error.errno == errno.EXDEV:
        return "cannot be reached: a mount lies on the way, and none is crossed"
    if error.errno == errno.ENOENT:
        return "does not exist"
    return f"cannot be reached: {error.strerror}"
