"""A workspace with something to delete in it, the engine over it, and system calls that fail at a chosen step."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from remote.disk.deletion import Deletion, no_checkpoints, no_verdicts
from remote.disk.runguard import Checkpoints
from remote.disk.syscalls import Syscalls
from remote.policy import Policy
from remote.protocol.errors import RequestError
from remote.protocol.trash import Plan, Receipt

EFFECTS = ("rename", "mkdir", "rmdir", "unlink", "write", "fdatasync", "fsync", "syncfs")
"""The calls that change something or make it durable."""

EPOCH = ("config.json", "model.safetensors", "optimizer_state_dict.pt", "scheduler_state_dict.pt")


class Bench:
    """``<folder>/ws`` with the run ``out`` of some epochs, and a foreign folder beside the workspace."""

    def __init__(self, folder: Path, epochs: int = 3, size: int = 5000) -> None:
        self.workspace = folder / "ws"
        self.run = self.workspace / "out"
        self.foreign = folder / "foreign"
        for number in range(epochs):
            fill(self.run / str(number), size)
        fill(self.foreign, size)

    def engine(self, calls: Optional[Syscalls] = None, checkpoints: Checkpoints = no_checkpoints) -> Deletion:
        where = str(self.workspace)
        return Deletion(Policy(False, "", (where,), where), no_verdicts, checkpoints, calls)

    def trash(self) -> list[str]:
        folder = self.workspace / ".eagle_trash"
        return sorted(os.listdir(folder)) if folder.exists() else []


class Killed(BaseException):
    """Stands for a process that is gone in the middle of its work: nothing catches it."""


class Failing(Syscalls):
    """Fails at the ``at``-th effect, before or after it was made; ``seen`` counts them.

    :param how: ``EIO``, ``ENOSPC``, ``die before`` or ``die after`` (both raise ``Killed``), ``kill before`` or
        ``kill after`` (SIGKILL to this process).
    """

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how, self.seen = at, how, 0
        self.met: list[str] = []
        for name in EFFECTS:
            setattr(self, name, self._wrapped(name, getattr(self, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            self.seen += 1
            self.met.append(name)
            due = self.seen == self.at
            if due and self.how in ("EIO", "ENOSPC"):
                number = getattr(errno, self.how)
                raise OSError(number, os.strerror(number))
            if due and self.how.endswith("before"):
                self._end()
            try:
                return call(*args)
            finally:
                if due and self.how.endswith("after"):
                    self._end()

        return wrapped

    def _end(self) -> None:
        if self.how.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed


def fill(folder: Path, size: int = 5000, names: Sequence[str] = EPOCH) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(os.urandom(size))


def prune(engine: Deletion, plan: Plan, key: Optional[str] = None) -> Receipt:
    return engine.prune(plan.id, plan.fingerprint, plan.confirm, "tester", key)


def refusal(call: Callable[..., Any], *args: Any) -> RequestError:
    """The refusal that a call answers with."""
    try:
        call(*args)
    except RequestError as error:
        return error
    raise AssertionError("it was not refused")


def inodes(folder: Path) -> dict[str, int]:
    """Every path below a folder with its inode."""
    return {str(path.relative_to(folder)): path.lstat().st_ino for path in sorted(folder.rglob("*"))}


def effects(work: Callable[[Syscalls], Any]) -> int:
    """How many effects some work has when nothing fails."""
    calls = Failing(0, "")
    work(calls)
    return calls.seen
