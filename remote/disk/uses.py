"""Whether anybody has the files of an artifact open, asked from the kernel, and who that is as far as /proc shows it.

The kernel grants a write lease on a file only while nobody else has it open or mapped, in whatever namespace and by
whichever user; it is given back at once. /proc only explains: it shows an ordinary user nothing of other users.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from remote import procfs
from remote.disk.filesystems import filesystem
from remote.disk.syscalls import Syscalls, Unsupported, mount_id
from remote.protocol.artifacts import PROOF_LOCAL

FREE, HELD, WRITTEN, UNCLEAR = "free", "held", "written", "unclear"

FILE_LIMIT = 5000
"""Files of one artifact that are asked about; a prune asks about each one again."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Use:
    """What the kernel says about the files of an artifact.

    :param state: ``FREE``, ``HELD``, ``WRITTEN`` (open for writing) or ``UNCLEAR``.
    :param files: how many were asked about.  :param more: there are others that were not.
    :param proof: how strong a ``FREE`` is here, one of the ``PROOF_`` words; None where nothing can be proven.
    :param why: of a state that is not free: the file and its holders, or why it cannot be told.
    """

    state: str
    files: int = 0
    more: bool = False
    proof: Optional[str] = None
    why: str = ""


class Holders:
    """The processes that hold files below a folder, as /proc showed it once.

    :param folder: with its symbolic links resolved.
    """

    def __init__(self, folder: str) -> None:
        self._prefix = folder.rstrip("/") + "/"
        self._found: dict[str, set[str]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                for path in (*_descriptors(name), *_mappings(name)):
                    if path.startswith(self._prefix):
                        self._found.setdefault(path, set()).add(name)

    def of(self, path: str) -> str:
        """The processes that hold a file, for a sentence."""
        pids = sorted(self._found.get(path, ()), key=int)
        if not pids:
            return "a process that cannot be seen from here"
        records = ((pid, procfs.stat(int(pid))) for pid in pids[:3])
        named = ", ".join(f"process {pid} ({record.comm if record else 'gone'})" for pid, record in records)
        return named + (f" and {len(pids) - 3} more" if len(pids) > 3 else "")

    def inside(self, path: str) -> Optional[str]:
        """A held file that is the path or lies below it."""
        below = path.rstrip("/") + "/"
        return next((held for held in sorted(self._found) if held == path or held.startswith(below)), None)


def look(path: str, holders: Holders, syscalls: Syscalls, limit: int = FILE_LIMIT) -> Use:
    """Asks for each file of a tree, or for a single one."""
    proof: Optional[str] = None
    count = 0
    unclear = ""
    try:
        proof = _proof(path)
        for file in _files(path):
            if count >= limit:
                return _final(path, Use(FREE, count, True, proof, unclear), holders)
            count += 1
            state = _ask(file, syscalls)
            if state in (HELD, WRITTEN):
                return Use(state, count, False, proof, f"{os.path.relpath(file, path)} is open by {holders.of(file)}")
            if state != FREE:
                unclear = unclear or state
    except Unsupported as error:
        unclear = str(error)
    except OSError as error:
        unclear = f"it cannot be read: {error.strerror or error}"
    return _final(path, Use(FREE, count, False, proof, unclear), holders)


def _final(path: str, use: Use, holders: Holders) -> Use:
    """Where no lease could be had for some file, /proc may still know a holder; if not, nothing is proven."""
    if not use.why:
        return use
    held = holders.inside(path)
    if held is not None:
        return Use(HELD, use.files, use.more, None, f"{os.path.basename(held)} is open by {holders.of(held)}")
    if use.proof == PROOF_LOCAL:  # no leases there; that no local process holds it is all that can be known
        return Use(FREE, use.files, use.more, PROOF_LOCAL)
    return Use(UNCLEAR, use.files, use.more, None, use.why)


def _ask(file: str, syscalls: Syscalls) -> str:
    """The state of one file, or why it cannot be told."""
    try:
        descriptor = os.open(file, _FLAGS)
    except FileNotFoundError:
        return FREE
    except OSError as error:
        return WRITTEN if error.errno == errno.ETXTBSY else f"{os.path.basename(file)}: {error.strerror or error}"
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return FREE
        try:
            syscalls.lease(descriptor)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return HELD if _readable(descriptor, syscalls) else WRITTEN
            return f"the kernel grants no lease on {os.path.basename(file)}: {error.strerror or error}"
        syscalls.unlease(descriptor)
        return FREE
    finally:
        os.close(descriptor)


def _readable(descriptor: int, syscalls: Syscalls) -> bool:
    """Whether those who have the file open only read it."""
    try:
        syscalls.read_lease(descriptor)
    except OSError:
        return False
    syscalls.unlease(descriptor)
    return True


def _proof(path: str) -> Optional[str]:
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    descriptor = os.open(folder, _DIRECTORY)
    try:
        return filesystem(mount_id(descriptor)).proof.strength
    finally:
        os.close(descriptor)


def _files(path: str) -> Iterator[str]:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        yield path
        return
    queue = [path]
    while queue:
        with os.scandir(queue.pop()) as entries:
            for item in entries:
                if item.is_dir(follow_symlinks=False):
                    queue.append(item.path)
                elif item.is_file(follow_symlinks=False):
                    yield item.path


def _descriptors(pid: str) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue


_MAPPED = re.compile(rb"^\S+ \S+ \S+ \S+ \d+ +(/.*)$", re.MULTILINE)


def _mappings(pid: str) -> Iterator[str]:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            data = file.read()
    except OSError:
        return
    yield from {os.fsdecode(path) for path in _MAPPED.findall(data)}
