"""The system calls that safe deletion stands on, some of which Python does not have.

All effects of the engine go through one ``Syscalls`` object. Where the kernel lacks a call, or a container forbids it,
the answer is ``Unsupported`` with a sentence, never a weaker path. References: openat2(2), rename(2), fcntl(2) on
leases, fallocate(2), proc_pid_fdinfo(5).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
from functools import cache
from pathlib import Path

_OPENAT2 = 437  # the same number on every architecture
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_RENAME_NOREPLACE = 1
_FALLOC_KEEP_SIZE = 1
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_GUARDED = _RESOLVE_NO_XDEV | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
_TRIES = 16  # openat2 answers EAGAIN when a rename elsewhere disturbed the look-up
_PIECE_BYTES = 2048  # of a path in one call: the kernel takes 4096, our trees may be deeper

READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
READ_FILE = os.O_RDONLY | os.O_NONBLOCK


class Unsupported(Exception):
    """This kernel, container or file system lacks what safe deletion needs. The message is a sentence without its
    point."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Syscalls:
    """The calls as they are; tests put one that fails in its place. All raise ``OSError`` as the kernel answers."""

    def open_beneath(self, directory: int, path: str, flags: int, mode: int = 0) -> int:
        """Opens a path below an open directory without following any symbolic link and without crossing any mount.

        :raises Unsupported: where the kernel has no openat2 or a sandbox forbids it.
        :raises OSError: ``ELOOP`` at a symbolic link, ``EXDEV`` at a mount.
        """
        _require_openat2()
        pieces = _pieces(path)
        opened = directory
        try:
            for piece in pieces[:-1]:
                deeper = _openat2(opened, piece, os.O_PATH | os.O_DIRECTORY, 0, _GUARDED)
                if opened != directory:
                    os.close(opened)
                opened = deeper
            return _openat2(opened, pieces[-1], flags | os.O_NOFOLLOW, mode, _GUARDED)
        finally:
            if opened != directory:
                os.close(opened)

    def rename(self, directory: int, name: str, target_directory: int, target: str) -> None:
        """Renames without ever replacing what has the target's name.

        :raises Unsupported: where kernel or file system cannot do that.
        :raises OSError: ``EEXIST`` where the name is taken.
        """
        number = _RENAMEAT2.get(platform.machine())
        if number is None:
            raise Unsupported(f"renameat2 is not known for the architecture {platform.machine()}")
        try:
            _call(number, directory, os.fsencode(name), target_directory, os.fsencode(target), _RENAME_NOREPLACE)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS):
                raise Unsupported("this file system cannot rename without replacing (renameat2)") from None
            raise

    def mkdir(self, directory: int, name: str) -> None:
        """Makes a directory that only its owner can enter."""
        os.mkdir(name, 0o700, dir_fd=directory)

    def rmdir(self, directory: int, name: str) -> None:
        os.rmdir(name, dir_fd=directory)

    def unlink(self, directory: int, name: str) -> None:
        os.unlink(name, dir_fd=directory)

    def write(self, descriptor: int, data: bytes) -> None:
        """Writes all of it or raises; a part that a full disk cut may then be in the file."""
        written = os.write(descriptor, data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def reserve(self, descriptor: int, offset: int, length: int) -> None:
        """Sets blocks aside for a file to grow into, without changing its size.

        :raises OSError: ``EOPNOTSUPP`` where the file system cannot.
        """
        if _libc().fallocate(descriptor, _FALLOC_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
            _raise()

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def syncfs(self, descriptor: int) -> None:
        """Writes back the file system of a descriptor, so that its free space is true."""
        if _libc().syncfs(descriptor) != 0:
            _raise()

    def lease(self, descriptor: int) -> None:
        """Takes a write lease: the kernel grants it only while nobody else has the file open or mapped.

        Whoever opens the file meanwhile waits until ``unlease`` or the closing of the descriptor, so it is held for
        milliseconds. The kernel then tells us by a signal: SIGURG, which does nothing where nobody listens, in the
        place of SIGIO, which would end this process.

        :raises OSError: ``EAGAIN`` where the file is in use, ``EACCES`` where it belongs to somebody else.
        """
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def read_lease(self, descriptor: int) -> None:
        """Takes a read lease, which the kernel refuses only where somebody has the file open for writing."""
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)

    def unlease(self, descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def mount_id(descriptor: int) -> int:
    """The id of the mount that a descriptor was opened through, as in ``/proc/self/mountinfo``.

    :raises Unsupported: where /proc does not tell.
    """
    try:
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
            if line.startswith("mnt_id:"):
                return int(line.partition(":")[2])
    except (OSError, ValueError):
        pass
    raise Unsupported("/proc does not tell which mount a directory lies on")


def _pieces(path: str) -> list[bytes]:
    """The path in pieces that one call takes each."""
    pieces = [b""]
    for name in os.fsencode(path).split(b"/"):
        joined = pieces[-1] + b"/" + name if pieces[-1] else name
        if len(joined) > _PIECE_BYTES and pieces[-1]:
            pieces.append(name)
        else:
            pieces[-1] = joined
    return pieces


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _require_openat2() -> None:
    try:
        os.close(_openat2(-100, b"/", os.O_PATH | os.O_DIRECTORY, 0, 0))
    except OSError as error:
        raise Unsupported(
            f"openat2 cannot be used here ({error.strerror}): it needs Linux 5.6 and a container that allows it"
        ) from None


def _openat2(directory: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    how = _How(flags | os.O_CLOEXEC, mode, resolve)
    for _ in range(_TRIES):
        try:
            return _call(_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
        except OSError as error:
            # An open that meets a lease is EAGAIN too, but as EWOULDBLOCK of a descriptor opened without waiting.
            if error.errno != errno.EAGAIN:
                raise
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _call(number: int, *arguments: object) -> int:
    converted = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *converted)
    if result < 0:
        _raise()
    return result


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
