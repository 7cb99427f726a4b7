"""A shell or command of the embedded host on a terminal (pty) of its own."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pty
import pwd
import struct
import termios
from collections.abc import Mapping
from typing import Self

READ_BYTES = 65536


def login_shell() -> str:
    """The shell of the user who runs the demo."""
    return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"


class OnTerminal:
    """A process with a controlling terminal, and the side of it that a person would sit at."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self._master = master

    @classmethod
    async def start(cls, command: str | None, environment: Mapping[str, str], cwd: str, size: tuple[int, int]) -> Self:
        """Starts a login shell, or a command by ``/bin/sh``.

        :param size: columns and lines.
        :raises OSError: when it cannot be started.
        """
        shell = login_shell()
        words = ["/bin/sh", "-c", command] if command is not None else [f"-{os.path.basename(shell)}"]
        master, other = pty.openpty()
        try:
            _resize(master, size)
            process = await asyncio.create_subprocess_exec(
                *words,
                executable=words[0] if command is not None else shell,
                stdin=other,
                stdout=other,
                stderr=other,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(other)
        os.set_blocking(master, False)
        return cls(process, master)

    async def read(self) -> bytes:
        """What it shows next; empty when nobody has the terminal any more."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._master, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._master)
        try:
            return os.read(self._master, READ_BYTES)
        except OSError as error:
            if error.errno == errno.EIO:  # Linux's end of a terminal
                return b""
            raise

    async def write(self, data: bytes) -> None:
        """Types; waits while the process does not read."""
        loop, view = asyncio.get_running_loop(), memoryview(data)
        while view:
            ready = asyncio.Event()
            loop.add_writer(self._master, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(self._master)
            view = view[os.write(self._master, view) :]

    def resize(self, size: tuple[int, int]) -> None:
        _resize(self._master, size)

    def close(self) -> None:
        """Takes the terminal away: what is still on it gets SIGHUP."""
        os.close(self._master)


def _resize(master: int, size: tuple[int, int]) -> None:
    columns, lines = size
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
