"""The runner's sleep, cut short by signals: a child that ended, a wish to stop, a knock to look at the records now."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Optional

KNOCK = signal.SIGUSR1
"""Sent to a runner after ``stop.json`` was written."""


class Wakeup:
    """Takes over the signals of this process.

    SIGHUP and SIGINT are taken and dropped, by handlers: an ignored signal would stay ignored in the stage. SIGTERM is
    kept as a wish to stop.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.terminated = False
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, KNOCK):
            signal.signal(number, _drop)
        signal.signal(signal.SIGTERM, self._terminate)

    def sleep(self, seconds: float) -> None:
        """Sleeps so long at most; a signal ends it at once."""
        if select.select([self._reader], [], [], seconds)[0]:
            os.read(self._reader, 4096)

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminated = True


def _drop(number: int, frame: Optional[FrameType]) -> None:
    return
