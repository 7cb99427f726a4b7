"""What a running process costs: CPU, memory, and the bytes that it writes to its terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_UP_SECONDS = 4.0
"""Imports and the first look at everything are not the steady state."""


_RECENT = 256 * 1024
"""Bytes of the terminal's output that are kept to look in."""


@dataclass(frozen=True)
class Cost:
    """Of one process: percent of one core, resident and proportional memory in bytes, bytes a second of output."""

    name: str
    cpu_percent: float
    resident: int
    proportional: int
    terminal: float

    def __str__(self) -> str:
        return (
            f"{self.name:34}  {self.cpu_percent:5.2f} % of a core  {self.resident / 1e6:5.1f} MB resident  "
            f"{self.proportional / 1e6:5.1f} MB proportional  {self.terminal / 1e3:6.1f} kB/s to the terminal"
        )


class OnTerminal:
    """A command on a terminal of its own, for as long as the context lasts."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], columns: int = 120, lines: int = 34
    ) -> None:
        self._terminal, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = subprocess.Popen(
            command, env=environment, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True
        )
        os.close(other_end)
        self._written = 0
        self._recent = b""
        threading.Thread(target=self._drain, daemon=True).start()

    def __enter__(self) -> OnTerminal:
        time.sleep(WARM_UP_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    @property
    def pid(self) -> int:
        return self._process.pid

    def cost(self, seconds: float, **pids: Callable[[], int]) -> list[Cost]:
        """The costs over ``seconds`` of the processes named; only the command itself writes to the terminal."""
        found = {name: pid() for name, pid in pids.items()}
        before = {name: cpu_seconds(pid) for name, pid in found.items()}
        written, begin = self._written, time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - begin
        costs = []
        for name, pid in found.items():
            memory = _memory(pid)
            terminal = (self._written - written) / elapsed if pid == self.pid else 0.0
            percent = 100 * (cpu_seconds(pid) - before[name]) / elapsed
            costs.append(Cost(name.replace("_", " "), percent, memory["Rss"], memory["Pss"], terminal))
        return costs

    def write(self, keys: bytes) -> None:
        """Types keys."""
        os.write(self._terminal, keys)

    def answer(self, keys: bytes, words: bytes, patience: float = 10.0) -> float:
        """Seconds from the keys until the words are on the terminal.

        :raises TimeoutError: when they never come.
        """
        self._recent = b""
        begun = time.monotonic()
        self.write(keys)
        while words not in self._recent:
            if time.monotonic() - begun > patience:
                raise TimeoutError(f"{words!r} never came")
            time.sleep(0.001)
        return time.monotonic() - begun

    def child(self, word: str) -> int:
        """The descendant whose command line contains ``word``."""
        return next(iter(self._children(word)))

    def children(self, word: str) -> int:
        """How many descendants have ``word`` in their command line."""
        return len(self._children(word))

    def _children(self, word: str) -> list[int]:
        from remote.procfs import command_line, descendants

        return [record.pid for record in descendants([self.pid]) if word in (command_line(record.pid) or "")]

    def _drain(self) -> None:
        try:
            while data := os.read(self._terminal, 65536):
                self._written += len(data)
                self._recent = (self._recent + data)[-_RECENT:]
        except OSError:  # the other end is closed
            return


def cpu_seconds(pid: int) -> float:
    """User and system time so far, of all threads. Fields 14 and 15 of /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
