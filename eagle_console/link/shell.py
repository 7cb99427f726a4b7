"""A shell or a command on a host with this process's terminal: over an SSH connection, or as a child process.

Unlike everything else on the link this needs a terminal (pty) on the host, which a server may refuse.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from eagle_console.link import terminal
from eagle_console.link.errors import ConnectionLost, NoTerminal

READ_BYTES = 65536
_LAST_WORDS_SECONDS = 2.0


async def over_ssh(connection: asyncssh.SSHClientConnection, host: str, words: Sequence[str]) -> int:
    """Runs a login shell, or a command given as its words, and gives its exit status.

    With a terminal on stdin the host makes one of the same size and kind; without one the streams are passed on.

    :raises NoTerminal: when the server makes no terminal.
    :raises ConnectionLost: when the connection ends first.
    """
    options: dict[str, Any] = {"encoding": None, "x11_forwarding": False, "request_pty": terminal.is_terminal()}
    if terminal.is_terminal():
        options |= {"term_type": os.environ.get("TERM", "xterm"), "term_size": tuple(terminal.size())}
    try:
        process = await connection.create_process(shlex.join(words) or None, **options)
    except (asyncssh.Error, OSError) as error:
        if terminal.is_terminal() and isinstance(error, asyncssh.ChannelOpenError):
            raise NoTerminal(
                f"{host} gives us no terminal: {getattr(error, 'reason', error)}",
                "a key with 'restrict' in authorized_keys needs 'pty' too; ssh -T may still run single commands",
            ) from None
        raise ConnectionLost(f"{host} does not run commands for us: {error}") from None
    pumps = [
        asyncio.create_task(_pump_output(process.stdout, 1)),
        asyncio.create_task(_pump_output(process.stderr, 2)),
    ]
    typing = asyncio.create_task(_pump_input(process))
    ended = asyncio.create_task(process.wait_closed())
    with terminal.raw(), _signals(process) as told:
        stopped = asyncio.create_task(told.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(pumps, timeout=_LAST_WORDS_SECONDS)
        finally:
            process.close()
            for task in (*pumps, typing, ended, stopped):
                task.cancel()
            await asyncio.gather(*pumps, typing, ended, stopped, return_exceptions=True)
    return _status(process, told, host)


async def as_child(words: Sequence[str], **options: Any) -> int:
    """Runs a program that inherits the terminal, and gives its exit status.

    :param options: for ``create_subprocess_exec``.
    :raises OSError: when it cannot be started.
    """
    with terminal.kept(), terminal.keys_are_for_the_child():
        process = await asyncio.create_subprocess_exec(*words, **options)
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
    return status if status >= 0 else 128 - status


async def local(words: Sequence[str]) -> int:
    """The user's login shell, or a command, on this machine.

    :raises OSError: when it cannot be started.
    """
    if words:
        return await as_child(words, cwd=Path.home())
    shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return await as_child([f"-{os.path.basename(shell)}"], executable=shell, cwd=Path.home())


async def _pump_output(stream: asyncssh.SSHReader[bytes], descriptor: int) -> None:
    try:
        while data := await stream.read(READ_BYTES):
            await asyncio.to_thread(_write_all, descriptor, data)  # a stopped terminal must not stop the link
    except (asyncssh.Error, OSError):
        pass  # the exit status tells a lost connection; a closed stdout is its reader's affair


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


async def _pump_input(process: asyncssh.SSHClientProcess[bytes]) -> None:
    try:
        while data := await _next_input():
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.write_eof()
    except (asyncssh.Error, OSError):
        pass  # as above


async def _next_input() -> bytes:
    """What can be read from stdin next; empty at its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except PermissionError:
        return os.read(0, READ_BYTES)  # a regular file, which never makes anybody wait
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return os.read(0, READ_BYTES)


@contextmanager
def _signals(process: asyncssh.SSHClientProcess[bytes]) -> Iterator[_Told]:
    """Passes changes of the window's size on, and ends the shell before this process is ended."""
    loop = asyncio.get_running_loop()
    told = _Told()
    handlers = {
        signal.SIGWINCH: lambda: process.change_terminal_size(*terminal.size()),
        signal.SIGTERM: lambda: told.tell(signal.SIGTERM),
        signal.SIGHUP: lambda: told.tell(signal.SIGHUP),
    }
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield told
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


class _Told:
    """The signal that told this process to end."""

    def __init__(self) -> None:
        self.number = 0
        self._event = asyncio.Event()

    def tell(self, number: int) -> None:
        self.number = number
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


def _status(process: asyncssh.SSHClientProcess[bytes], told: _Told, host: str) -> int:
    if told.number:
        return 128 + told.number
    if process.exit_signal is not None:
        return 128 + getattr(signal, f"SIG{process.exit_signal[0]}", 0)
    if process.exit_status is None:
        raise ConnectionLost(f"the connection to {host} is lost; the shell ended with it")
    return int(process.exit_status)
