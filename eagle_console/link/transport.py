"""Ways to run one command on a host and talk to it: the interface, and the local one.

A transport is anything that can run a command line in a shell on the host and connect three byte streams to it. The
agent needs nothing else: no terminal, no forwards, no file transfer.
"""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from eagle_console.link.errors import AgentError, BootstrapError, ConnectionLost, PortClosed

READ_BYTES = 65536
STDERR_BYTES = 64 * 1024
"""Kept of what the host writes to stderr: the last words before an end."""

CLOSE_SECONDS = 2.0
"""How long a closed command may take to end by itself."""


class StderrTail:
    """The last ``STDERR_BYTES`` that a command wrote to its stderr."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= STDERR_BYTES:
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        return b"".join(self._chunks)[-STDERR_BYTES:].decode(errors="replace")


class Channel(ABC):
    """A running command. Lines are read by one task, written by any."""

    def __init__(self) -> None:
        self.stderr = StderrTail()
        self._buffer = bytearray()

    async def read_line(self, limit: int) -> bytes:
        """The next line with its newline; what is left without one at the end of the stream; then ``b""``.

        :param limit: bytes after which a line without a newline is given up.
        :raises AgentError: for a line over the limit.
        :raises ConnectionLost: when the connection fails.
        """
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                return self._take(end + 1)
            searched = len(self._buffer)
            if searched >= limit:
                raise AgentError(f"the host sent a line of more than {limit} bytes")
            data = await self._read(READ_BYTES)
            if not data:
                return self._take(searched)
            self._buffer += data

    async def begun(self) -> None:  # noqa: B027  # most commands are opened after the login
        """Waits until the command runs, where the login is part of running it; questions may be open meanwhile.

        :raises LinkError: of the class that says why it never will.
        """

    def _take(self, count: int) -> bytes:
        line = bytes(self._buffer[:count])
        del self._buffer[:count]
        return line

    @abstractmethod
    async def _read(self, count: int) -> bytes:
        """Up to ``count`` bytes of stdout, ``b""`` at its end."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to the command's stdin and waits while too much is on the way.

        :raises ConnectionLost: when it cannot arrive any more.
        """

    @abstractmethod
    async def wait(self) -> int | None:
        """The exit status once the command has ended; None when a signal or a lost connection ended it."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the command: its stdin is closed; what does not end by that in ``CLOSE_SECONDS`` is aborted."""

    @abstractmethod
    async def abort(self) -> None:
        """Ends the command at once, or leaves it behind where the host does not answer."""


class Transport(Protocol):
    """A connection to a host. An async context manager: leaving it closes every channel and the connection."""

    async def open(self, command: str) -> Channel:
        """Runs ``command``, a shell command line, on the host.

        :raises ConnectionLost, BootstrapError: when it cannot be started.
        """

    async def open_port(self, port: int) -> tuple[Reading, Writing]:
        """A stream to a port of the host's loopback.

        :raises ForwardingRefused, PortClosed, ConnectionLost: here, or from the first reading.
        """

    async def shell(self, words: Sequence[str]) -> int:
        """Lends this process's terminal to a login shell, or to a command, and gives its exit status.

        :param words: the command; none for a shell.
        :raises NoTerminal, ConnectionLost: when there is none, or the connection ends first.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Reading(Protocol):
    """One direction of a stream to a port."""

    async def read(self, n: int = -1) -> bytes: ...


class Writing(Protocol):
    """The other direction."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def write_eof(self) -> None: ...

    def close(self) -> None: ...


class LocalTransport:
    """Commands as child processes of the console, for a console started on the GPU host itself."""

    def __init__(self) -> None:
        self._channels: list[ProcessChannel] = []

    async def open(self, command: str) -> Channel:
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in the console's terminal is not for the agent
            )
        except OSError as error:
            raise BootstrapError(f"no shell can be started here: {error}") from None
        channel = ProcessChannel(process)
        self._channels.append(channel)
        return channel

    async def open_port(self, port: int) -> tuple[Reading, Writing]:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            raise PortClosed(f"nothing listens on port {port}: {error.strerror}") from None

    async def shell(self, words: Sequence[str]) -> int:
        from eagle_console.link import shell  # only here: the agent's link needs no terminal

        try:
            return await shell.local(words)
        except OSError as error:
            raise BootstrapError(f"{words[0] if words else 'the shell'} cannot be started: {error.strerror}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()


class ProcessChannel(Channel):
    """A child process of the console, with pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._stdin, self._stdout, self._errors = process.stdin, process.stdout, process.stderr
        self._pump = asyncio.create_task(self._read_stderr())

    async def _read(self, count: int) -> bytes:
        return await self._stdout.read(count)

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as error:
            raise ConnectionLost(f"the agent's process has ended: {error}") from None

    async def wait(self) -> int | None:
        status = await self._process.wait()
        return status if status >= 0 else None

    async def all_said(self, seconds: float) -> None:
        """Waits until stderr has come to its end, but not longer than ``seconds``."""
        await asyncio.wait({self._pump}, timeout=seconds)

    async def close(self) -> None:
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_SECONDS)
        except TimeoutError:
            pass
        await self.abort()

    async def abort(self) -> None:
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself just now
            await self._process.wait()
        self._pump.cancel()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while await self._stdout.read(READ_BYTES):
                    pass  # what nobody reads any more would keep the pipe open
        except TimeoutError:
            pass  # somebody else has it too

    async def _read_stderr(self) -> None:
        while data := await self._errors.read(READ_BYTES):
            self.stderr.add(data)
