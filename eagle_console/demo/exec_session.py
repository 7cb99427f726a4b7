"""One command of the embedded host: ``/bin/sh -c COMMAND`` with its three streams pumped over an SSH channel.

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

READ_BYTES = 65536
PAUSE_BYTES = 1024 * 1024
"""So much input may wait for the command before the client is told to pause."""

HANGUP_SECONDS = 5.0
"""After a lost connection the command has this long to see its end of input; then it is sent SIGHUP, then SIGKILL."""

LAST_WORDS_BYTES = 1024 * 1024
"""So much output is thrown away after a lost connection, so that a command can come to its end; more has to wait."""

EXTENDED_DATA_STDERR = 1  # RFC 4254, section 5.2


class ExecSession(asyncssh.SSHServerSession[bytes]):
    """A session that runs one command; a shell, a terminal and a subsystem are refused.

    :param environment: the command's whole environment.
    :param cwd: where it starts.
    :param tasks: holds the running commands, so that the server can wait for them.
    """

    def __init__(self, environment: Mapping[str, str], cwd: str, tasks: set[asyncio.Task[None]]) -> None:
        self._environment = environment
        self._cwd = cwd
        self._tasks = tasks
        self._command = ""
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

    def pty_requested(self, term_type: str, term_size: object, term_modes: object) -> bool:
        return False

    def shell_requested(self) -> bool:
        return False

    def subsystem_requested(self, subsystem: str) -> bool:
        return False

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return True

    def session_started(self) -> None:
        task = asyncio.create_task(self._run())
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
        assert self._channel is not None
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
        if not self._lost.is_set():
            if code < 0:
                self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                self._channel.exit(code)

    async def _pump_input(self, stdin: asyncio.StreamWriter) -> None:
        try:
            while True:
                while self._input:
                    data = self._input.popleft()
                    stdin.write(data)
                    await stdin.drain()
                    self._input_size -= len(data)
                    if self._input_size <= PAUSE_BYTES // 2 and self._channel and not self._lost.is_set():
                        self._channel.resume_reading()
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
