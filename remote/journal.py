"""The journal of a workspace: who did what, when and why, in lines that are chained by their hashes.

``<workspace>/.eagle_console/journal.jsonl``, JSON lines, appended to and never rewritten. A line is durable before what
it announces happens; if it cannot be written, that does not happen. Space for the next lines is set aside while there
is some, because a full disk is when things must be deleted. A line that a crash cut is passed over: its effect never
began. Any other break of the chain is shown.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import hashlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from remote import procfs
from remote.disk.syscalls import Syscalls
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import FAILED, NOT_FOUND, REFUSED, ProtocolError, RequestError
from remote.protocol.trash import Journal as JournalPage
from remote.protocol.trash import JournalEntry

FILE = "journal.jsonl"
RESERVE_BYTES = 1024 * 1024
LINE_BYTES = 512 * 1024
PAGE_BYTES = 160 * 1024
PAGE_ENTRIES = 200
_SHOWN_PATHS = 20
_SHOWN_FACT = 400


@dataclass(frozen=True)
class Line:
    """One line on the disk.

    :param uptime: seconds since boot, suspended time included: it does not jump with the wall clock.
    :param event: what the machine reads of it, with ``data``; empty for a line that is for people alone.
    :param previous: hash of the line before.  :param hash: of this one, ``previous`` included.
    """

    seq: int
    wall: float
    boot_id: str
    uptime: float
    machine_id: str
    user: str
    action: str
    text: str
    requested_by: str = ""
    receipt: str = ""
    paths: tuple[str, ...] = ()
    bytes: Optional[int] = None
    facts: Optional[dict[str, str]] = None
    event: str = ""
    data: Any = None
    previous: str = ""
    hash: str = ""

    @property
    def who(self) -> str:
        """The user at the console and the user on the host."""
        return f"{self.requested_by} as {self.user}" if self.requested_by else self.user


class Journal:
    """The journal in a folder. Its methods can be called from any thread; several processes may append.

    :param folder: gives the open folder of the journal, made where that is asked for; the caller of it closes it.
    """

    def __init__(self, calls: Syscalls, folder: Callable[[bool], int]) -> None:
        self._calls = calls
        self._folder = folder
        self._lock = threading.RLock()
        self._forget()

    def append(
        self,
        action: str,
        text: str,
        requested_by: str = "",
        receipt: str = "",
        paths: Sequence[str] = (),
        size: Optional[int] = None,
        facts: Optional[Mapping[str, str]] = None,
        event: str = "",
        data: Any = None,
    ) -> Line:
        """Appends a line; when this returns it is on the disk.

        :param size: bytes that the line is about.
        :raises RequestError: ``failed`` where it cannot be written; what it announces must then not happen.
        """
        line = Line(
            seq=0,
            wall=time.time(),
            boot_id=procfs.boot_id(),
            uptime=uptime(),
            machine_id=procfs.machine_id(),
            user=f"{_user()}@{socket.gethostname()}",
            action=action,
            text=text,
            requested_by=requested_by[:200],
            receipt=receipt,
            paths=tuple(paths),
            bytes=size,
            facts=dict(facts) if facts else None,
            event=event,
            data=to_wire(data),
        )
        try:
            with self._lock, self._opened(os.O_RDWR | os.O_APPEND, create=True) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                return self._append(descriptor, line)
        except OSError as error:
            raise RequestError(
                FAILED, f"the journal cannot be written ({error.strerror}), and nothing happens without it"
            ) from None

    def lines(self) -> Sequence[Line]:
        """All lines, the oldest first; none where there is no journal.

        :raises RequestError: ``failed`` where there is one that cannot be read.
        """
        try:
            with self._lock, self._opened(os.O_RDONLY, create=False) as descriptor:
                self._read_on(descriptor)
                return tuple(self._lines)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise RequestError(FAILED, f"the journal cannot be read: {error.strerror}") from None

    def page(self, after: Optional[int], limit: Optional[int]) -> JournalPage:
        """The last entries, the newest first, as many as fit into a frame.

        :param after: only those behind this seq.  :param limit: at most so many.
        """
        entries: list[JournalEntry] = []
        room = PAGE_BYTES
        with self._lock:
            lines = self.lines()
            unsound = frozenset(self._unsound)
        for line in reversed(lines):
            if after is not None and line.seq <= after:
                break
            entry = _entry(line, line.seq not in unsound)
            room -= len(json.dumps(to_wire(entry)))
            if room < 0 or len(entries) >= min(limit or PAGE_ENTRIES, PAGE_ENTRIES):
                break
            entries.append(entry)
        return JournalPage(tuple(entries), min(unsound) if unsound else None)

    def reserve(self, create: bool = False) -> None:
        """Sets space aside for lines to come; a file system that cannot is left alone.

        :param create: make the journal where there is none.
        """
        try:
            with self._lock, self._opened(os.O_RDWR, create) as descriptor:
                self._reserve(descriptor)
        except (OSError, RequestError):
            return  # the next line that is appended tries again

    @contextlib.contextmanager
    def _opened(self, flags: int, create: bool) -> Iterator[int]:
        try:
            folder = self._folder(create)
        except RequestError as error:
            if not create and error.code == NOT_FOUND:
                raise FileNotFoundError from None
            raise
        try:
            try:
                descriptor = self._calls.open_beneath(folder, FILE, flags)
            except FileNotFoundError:
                if not create:
                    raise
                descriptor = self._calls.open_beneath(folder, FILE, flags | os.O_CREAT, 0o644)
                self._calls.fsync(folder)
        finally:
            os.close(folder)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != os.geteuid():
                raise RequestError(REFUSED, f"{FILE} is not a file of ours alone (user {status.st_uid})")
            yield descriptor
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, line: Line) -> Line:
        self._read_on(descriptor)
        last = self._lines[-1] if self._lines else None
        chained = replace(line, seq=last.seq + 1 if last else 1, previous=last.hash if last else "")
        chained = replace(chained, hash=_hash(chained))
        data = (b"\n" if self._cut else b"") + _encoded(to_wire(chained)) + b"\n"
        if len(data) > LINE_BYTES:
            raise OSError(errno.EFBIG, "the line is too long")
        size = os.fstat(descriptor).st_size
        try:
            self._calls.write(descriptor, data)
            self._calls.fdatasync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        self._read_on(descriptor)
        self._reserve(descriptor)
        return chained

    def _reserve(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_blocks * 512 - status.st_size < RESERVE_BYTES // 2:
            with contextlib.suppress(OSError):
                self._calls.reserve(descriptor, status.st_size, RESERVE_BYTES)

    def _forget(self) -> None:
        self._lines: list[Line] = []
        self._unsound: list[int] = []
        self._inode: Optional[int] = None
        self._offset = 0
        self._cut = False

    def _read_on(self, descriptor: int) -> None:
        """Takes in what has been appended since the last reading."""
        status = os.fstat(descriptor)
        if status.st_ino != self._inode or status.st_size < self._offset:
            self._forget()
            self._inode = status.st_ino
        while True:
            data = os.pread(descriptor, max(LINE_BYTES * 2, 1 << 20), self._offset)
            end = data.rfind(b"\n") + 1
            if end == 0:
                self._cut = bool(data)
                return
            for raw in data[: end - 1].split(b"\n"):
                self._take(raw)
            self._offset += end

    def _take(self, raw: bytes) -> None:
        try:
            line = from_wire(Line, json.loads(raw))
        except (ValueError, RecursionError, ProtocolError):
            return  # cut by a crash; a line that was spoilt later shows as a break of the chain at the next one
        last = self._lines[-1] if self._lines else None
        follows = line.seq == last.seq + 1 and line.previous == last.hash if last else line.seq == 1
        if not follows or line.hash != _hash(line):
            self._unsound.append(line.seq)
        self._lines.append(line)


def uptime() -> float:
    """Seconds since this boot, suspended time included; a jump of the wall clock does not move it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _hash(line: Line) -> str:
    wire = to_wire(line)
    del wire["hash"]
    return hashlib.sha256(_encoded(wire)).hexdigest()


def _encoded(wire: Any) -> bytes:
    return json.dumps(wire, separators=(",", ":"), sort_keys=True, allow_nan=False).encode("ascii")


def _entry(line: Line, sound: bool) -> JournalEntry:
    facts = {name: text[:_SHOWN_FACT] for name, text in (line.facts or {}).items()}
    return JournalEntry(
        seq=line.seq,
        wall=line.wall,
        who=line.who,
        action=line.action,
        text=line.text,
        receipt=line.receipt,
        paths=line.paths[:_SHOWN_PATHS],
        bytes=line.bytes,
        facts=facts or None,
        sound=sound,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())
