"""Signals to exactly the process that is meant, and the adoption of orphans."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Optional

from remote import procfs
from remote.protocol.jobs import ProcessId

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def become_subreaper() -> None:
    """Makes this process the parent of every orphan below it, so that no double fork and no setsid escapes it.

    :raises OSError: where the kernel refuses (before Linux 3.4).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def send(process: ProcessId, number: int) -> bool:
    """Whether the signal went to exactly this process: a reused pid is never signalled.

    A pidfd holds the process while its start time is compared. Kernels before 5.3 and sandboxes have none; there the
    comparison directly precedes the signal.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        return _send_by_pid(process, number)
    try:
        if not procfs.alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    except AttributeError:  # a Python that was built with older kernel headers
        return _send_by_pid(process, number)
    finally:
        os.close(descriptor)
    return True


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; the number in words for a real-time signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reap() -> dict[int, int]:
    """The wait statuses of all children that have ended, by pid; never waits."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def outcome(status: int) -> tuple[Optional[int], Optional[int]]:
    """Exit code and signal of a wait status; exactly one of the two is None."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def _send_by_pid(process: ProcessId, number: int) -> bool:
    if not procfs.alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
