"""One command of the embedded host: ``/bin/sh -c COMMAND`` with its three streams pumped over an SSH channel, or a
shell or command on a terminal.

The pumps are our own because asyncssh's redirection loses output when the process exits. Pauses go both ways: a slow
client stops the reading of the command's output, a slow command stops the client.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Mapping

import asyncssh

from eagle_console.demo.terminal import OnTerminal

READ_BYTES = 65536
PAUSE_BYTES = 1024 * 1024
"""So much input may wait for the command before the client is told to pause."""

HANGUP_SECONDS = 5.0
"""After a lost connection the command has this long to see its end of input; then it is sent SIGHUP, then SIGKILL."""

LAST_WORDS_BYTES = 1024 * 1024
"""So much output is thrown away after a lost connection, so that a command can come to its end; more has to wait."""

LAST_SHOW_SECONDS = 1.0
"""For what a shell wrote just before its end; a process that it left behind may keep its terminal."""

EXTENDED_DATA_STDERR = 1  # RFC 4254, section 5.2


class ExecSession(asyncssh.SSHServerSession[bytes]):
    """A session that runs one command, or a shell on a terminal; a subsystem is refused.

    :param environment: the command's whole environment.
    :param cwd: where it starts.
    :param tasks: holds the running commands, so that the server can wait for them.
    """

    def __init__(self, environment: Mapping[str, str], cwd: str, tasks: set[asyncio.Task[None]]) -> None:
        self._environment = environment
        self._cwd = cwd
        self._tasks = tasks
        self._command: str | None = None
        self._terminal_size: tuple[int, int] | None = None
        self._terminal: OnTerminal | None = None
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._input: deque[bytes] = deque()
        self._input_size = 0
        self._input_ended = False
        self._input_event = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._hung_up = asyncio.Event()

    # What asyncssh calls.

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:
        self._terminal_size = (term_size[0], term_size[1])
        self._environment = {**self._environment, "TERM": term_type}
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._terminal is not None:
            self._terminal.resize((width, height))

    def shell_requested(self) -> bool:
        return self._terminal_size is not None

    def subsystem_requested(self, subsystem: str) -> bool:
        return False

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return True

    def session_started(self) -> None:
        task = asyncio.create_task(self._run() if self._terminal_size is None else self._run_on_terminal())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._input.append(data)
        self._input_size += len(data)
        self._input_event.set()
        if self._input_size > PAUSE_BYTES and self._channel:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._input_ended = True
        self._input_event.set()
        return True  # the command may still have something to say

    def signal_received(self, signame: str) -> None:
        number = getattr(signal, f"SIG{signame}", None)
        if isinstance(number, signal.Signals):
            self._signal(number)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._writable.set()
        self.eof_received()

    # The command.

    async def _run(self) -> None:
        assert self._channel is not None and self._command is not None
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._environment),
                cwd=self._cwd,
                start_new_session=True,
            )
        except OSError as error:
            self._channel.write_stderr(f"no shell can be started: {error}\n".encode())
            self._channel.exit(255)
            return
        assert process.stdin and process.stdout and process.stderr
        helpers = [asyncio.create_task(self._pump_input(process.stdin)), asyncio.create_task(self._hang_up())]
        try:
            await asyncio.gather(
                self._pump_output(process.stdout), self._pump_output(process.stderr, EXTENDED_DATA_STDERR)
            )
            code = await process.wait()
        finally:
            for helper in helpers:
                helper.cancel()
        self._tell_end(code)

    async def _run_on_terminal(self) -> None:
        assert self._channel is not None and self._terminal_size is not None
        try:
            terminal = await OnTerminal.start(self._command, self._environment, self._cwd, self._terminal_size)
        except OSError as error:
            self._channel.write(f"no shell can be started: {error}\r\n".encode())
            self._channel.exit(255)
            return
        self._terminal, self._process = terminal, terminal.process
        showing = asyncio.create_task(self._show(terminal))
        helpers = [asyncio.create_task(self._type(terminal)), showing]
        ended, lost = asyncio.create_task(terminal.process.wait()), asyncio.create_task(self._lost.wait())
        await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await asyncio.wait({showing}, timeout=LAST_SHOW_SECONDS)  # what it wrote last
        self._terminal = None
        for helper in (*helpers, lost):
            helper.cancel()
        await asyncio.gather(*helpers, lost, return_exceptions=True)
        terminal.close()
        self._signal(signal.SIGHUP)
        await asyncio.wait({ended}, timeout=HANGUP_SECONDS)
        self._signal(signal.SIGKILL)
        self._tell_end(await ended)

    async def _show(self, terminal: OnTerminal) -> None:
        assert self._channel is not None
        while data := await terminal.read():
            await self._writable.wait()
            self._channel.write(data)

    async def _type(self, terminal: OnTerminal) -> None:
        while not (self._input_ended and not self._input):
            while self._input:
                data = self._input.popleft()
                await terminal.write(data)
                self._taken(len(data))
            self._input_event.clear()
            await self._input_event.wait()

    def _tell_end(self, code: int) -> None:
        if not self._lost.is_set() and self._channel is not None:
            if code < 0:
                self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                self._channel.exit(code)

    def _taken(self, count: int) -> None:
        self._input_size -= count
        if self._input_size <= PAUSE_BYTES // 2 and self._channel and not self._lost.is_set():
            self._channel.resume_reading()

    async def _pump_input(self, stdin: asyncio.StreamWriter) -> None:
        try:
            while True:
                while self._input:
                    data = self._input.popleft()
                    stdin.write(data)
                    await stdin.drain()
                    self._taken(len(data))
                if self._input_ended:
                    break
                self._input_event.clear()
                await self._input_event.wait()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the command does not read any more; what else arrives is its client's affair
        stdin.close()

    async def _pump_output(self, stream: asyncio.StreamReader, datatype: int | None = None) -> None:
        assert self._channel is not None
        discarded = 0
        while data := await stream.read(READ_BYTES):
            await self._writable.wait()
            if not self._lost.is_set():
                self._channel.write(data, datatype)
                continue
            discarded += len(data)
            if discarded > LAST_WORDS_BYTES:
                await self._hung_up.wait()

    async def _hang_up(self) -> None:
        await self._lost.wait()
        for number in (signal.SIGHUP, signal.SIGKILL):
            await asyncio.sleep(HANGUP_SECONDS)
            self._signal(number)
            self._hung_up.set()

    def _signal(self, number: signal.Signals) -> None:
        """To the shell and what it runs in its own session; jobs have sessions of their own and are not meant."""
        if self._process and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass
