"""Children of a stage that have children of their own: each in its own session, and ended as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

_SESSION_FIELD = 3  # of /proc/PID/stat behind the command's name: state, ppid, pgrp, session
_PAUSE_SECONDS = 0.05


class Tree:
    """A child process in a session of its own, with everything that it starts and that stays in that session.

    :param output: where stdout and stderr are appended; None for the stage's own.
    :raises OSError: when it cannot be started.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], output: Optional[Path] = None, cwd: Optional[str] = None
    ) -> None:
        with contextlib.ExitStack() as files:
            log = files.enter_context(open(output, "ab")) if output else None
            self._process = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the child; it is the session's number too."""
        return self._process.pid

    def code(self) -> Optional[int]:
        """The child's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """SIGTERM to the child alone: it ends its own children, and saves what it can."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, grace_seconds: float) -> None:
        """SIGTERM to the child, then after the grace SIGKILL to everything of its session that is left."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_seconds)
        deadline = time.monotonic() + grace_seconds
        while (left := members(self.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in ("Z", "X") and int(fields[_SESSION_FIELD]) == session:
            found.append(int(entry))
    return found
