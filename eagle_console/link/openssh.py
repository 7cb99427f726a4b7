"""The system's ``ssh`` as a transport: ControlMaster, Kerberos, hardware tokens, ProxyCommand, whatever it is set up
for, with the promises of the console kept (``sshconfig``): the host key of every hop is verified, nothing is forwarded,
and questions are asked by the console.

Each command is one ssh process with pipes; no shell runs on this side, and the host's name is never read as an option.
It ends with the console, since its stdin does.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncssh

from eagle_console.config import state_dir
from eagle_console.link import hostkeys, sshconfig, ssherrors, terminal
from eagle_console.link.address import parse_address
from eagle_console.link.askpass_server import AskpassServer
from eagle_console.link.errors import (
    ConnectError,
    ConnectionLost,
    HostKeyError,
    LinkError,
    PortClosed,
    UnknownHostKey,
    forwarding_refused,
)
from eagle_console.link.hostkeys import SeenKey
from eagle_console.link.prompts import Nobody, Prompter, too_late
from eagle_console.link.sshconfig import Hop
from eagle_console.link.transport import CLOSE_SECONDS, READ_BYTES, Channel, ProcessChannel, Reading, Writing

MAX_PLACE_BYTES = 60
"""Of the folder that holds our private directory: a socket's path ends after 104 bytes on macOS, 108 on Linux."""

_LEARN_SECONDS = 120.0  # jump hosts may have questions
_LAST_WORDS_SECONDS = 1.0

_LEARNING = (
    "StrictHostKeyChecking=accept-new",
    "GlobalKnownHostsFile=/dev/null",
    "HashKnownHosts=no",
    "PreferredAuthentications=none",  # nobody logs in to a host that is not known
    "ControlPath=none",
)


class OpenSshTransport:
    """A host as the system's ssh reaches it. Each ``open`` is a connection of its own, unless ssh shares one.

    :param address: an alias of the user's ssh configuration, ``user@host:port``, or ``ssh://user@host:port``.
    :param name: the host's name in messages and in commands that are proposed to the user.
    :param prompter: is asked what ssh asks; by default there is nobody to ask.
    """

    def __init__(self, address: str, name: str | None = None, prompter: Prompter | None = None) -> None:
        self._address = parse_address(address)
        self._name = name or address
        self._prompter = prompter or Nobody()
        self._stack = AsyncExitStack()
        self._channels: list[_OpenSshChannel] = []

    async def __aenter__(self) -> Self:
        sshconfig.require_safe(self._address)
        ssh = sshconfig.find_ssh()
        if ssh is None:
            raise ConnectError("there is no ssh on this machine", "install OpenSSH's client, or drop transport = 'ssh'")
        self._ssh = ssh
        async with AsyncExitStack() as stack:
            self._directory = _private_directory()
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._config = self._directory / "config"
            self._config.write_text(sshconfig.includes())
            self._way = await sshconfig.way(ssh, self._config, self._address)
            self._known = hostkeys.sources(name for hop in self._way for name in hop.effective.known_hosts)
            self._known = [path for path in self._known if str(path) not in ("/dev/null", "none")]
            self._config.write_text(sshconfig.configuration(self._known))
            self._askpass = await stack.enter_async_context(AskpassServer(self._directory, self._name, self._prompter))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()
        await self._stack.aclose()

    async def open(self, command: str) -> Channel:
        process = await self._start(*self._overrides(), *sshconfig.destination(self._address), command)
        channel = _OpenSshChannel(process, self._why)
        self._channels.append(channel)
        return channel

    async def open_port(self, port: int) -> tuple[Reading, Writing]:
        target = f"127.0.0.1:{port}"
        process = await self._start("-o", "RemoteCommand=none", "-W", target, *sshconfig.destination(self._address))
        channel = _OpenSshChannel(process, self._why)
        self._channels.append(channel)
        stream = _PortStream(channel, process, port, self._name)
        return stream, stream

    async def shell(self, words: Sequence[str]) -> int:
        from eagle_console.link import shell  # only here: the agent's link needs no terminal

        options = [self._ssh, "-F", str(self._config), "-a", "-x", "-t" if terminal.is_terminal() else "-T"]
        command = [shlex.join(words)] if words else []
        argv = [*options, *self._overrides(), *sshconfig.destination(self._address), *command]
        return await shell.as_child(argv)

    def _overrides(self) -> list[str]:
        """Options of the destination only that would keep ssh from running our command."""
        effective = self._way[-1].effective
        words = ["-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"]
        for option, ours in (("sessiontype", "default"), ("stdinnull", "no"), ("forkafterauthentication", "no")):
            if effective.values.get(option, (ours,))[0] != ours:  # older versions do not know them
                words += ["-o", f"{option}={ours}"]
        return words

    async def _start(self, *words: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self._ssh, "-F", str(self._config), "-T", "-a", "-x", *words,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env=_environment(self._askpass.environment),
                start_new_session=True,  # no terminal: ssh asks us; and Ctrl-C is not for it
            )  # fmt: skip
        except OSError as error:
            raise ConnectError(f"{self._ssh} cannot be started: {error.strerror}") from None

    async def _why(self, words: str, started: bool) -> LinkError:
        """Why an ssh has failed."""
        if self._askpass.stopped is not None:
            return self._askpass.stopped
        if started:
            return ConnectionLost(
                f"the connection to {self._name} is lost: {ssherrors.last_line(words) or 'no reason'}"
            )
        unknown = ssherrors.unknown_key_of(words)
        if unknown is not None:
            return await self._unknown_key(unknown)
        if self._askpass.answered is not None and ssherrors.was_closed(words):
            return too_late(self._askpass.answered)
        return self._askpass.unasked or ssherrors.explain(words, self._name)

    async def _unknown_key(self, known_name: str) -> HostKeyError:
        """The question about the key of a host on the way."""
        for place, hop in enumerate(self._way):
            name, port = hop.effective.known_name
            if hostkeys.pattern(name, port).casefold() == known_name.casefold():
                key = await self._learn(hop, self._way[:place])
                if key is None:
                    break
                error = hostkeys.verdict(SeenKey(name, "", port, key), self._known)
                return UnknownHostKey(error.question, self._name) if isinstance(error, UnknownHostKey) else error
        return HostKeyError(f"the host key of {known_name} is not known", f"look at it and accept it: ssh {self._name}")

    async def _learn(self, hop: Hop, before: list[Hop]) -> asyncssh.SSHKey | None:
        """The key that a host shows, through the hosts before it; nobody logs in to it. None if it shows none."""
        learned = self._directory / "learned"
        learned.unlink(missing_ok=True)
        words = [word for option in (*_LEARNING, f"UserKnownHostsFile={learned}") for word in ("-o", option)]
        if before:
            words += ["-J", ",".join(sshconfig.jump_word(jump.address) for jump in before)]
        process = await self._start(*words, *sshconfig.destination(hop.address), "true")
        try:
            async with asyncio.timeout(_LEARN_SECONDS):
                await process.communicate()
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            algorithm, data = learned.read_text().split()[1:3]
            return asyncssh.import_public_key(f"{algorithm} {data}")
        except (OSError, ValueError):
            return None


class _OpenSshChannel(ProcessChannel):
    """A command at the other end of one ssh."""

    def __init__(self, process: asyncio.subprocess.Process, why: Callable[[str, bool], Awaitable[LinkError]]) -> None:
        super().__init__(process)
        self._why = why
        self._started = False

    async def begun(self) -> None:
        """Waits for the first that the host says: only then is the login over."""
        self._buffer += await self._read(READ_BYTES)

    async def _read(self, count: int) -> bytes:
        data = await super()._read(count)
        if data:
            self._started = True
        elif await self._failed():
            raise await self._error()
        return data

    async def write(self, data: bytes) -> None:
        try:
            await super().write(data)
        except ConnectionLost:
            raise await self._error() from None

    async def _failed(self) -> bool:
        try:
            status = await asyncio.wait_for(self.wait(), CLOSE_SECONDS)
        except TimeoutError:
            return False
        return status is None or status == ssherrors.FAILED

    async def _error(self) -> LinkError:
        await self.all_said(_LAST_WORDS_SECONDS)
        return await self._why(self.stderr.text(), self._started)


class _PortStream:
    """Both directions of a stream through ``ssh -W``."""

    def __init__(self, channel: _OpenSshChannel, process: asyncio.subprocess.Process, port: int, host: str) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._channel, self._process, self._port, self._host = channel, process, port, host
        self._stdin, self._stdout = process.stdin, process.stdout
        self._begun = False

    async def read(self, n: int = -1) -> bytes:
        data = await self._stdout.read(n)
        self._begun = self._begun or bool(data)
        if not data and not self._begun:
            await self._process.wait()
            await self._channel.all_said(_LAST_WORDS_SECONDS)
            words = self._channel.stderr.text()
            if "prohibited" in words:
                raise forwarding_refused(self._host)
            if "connect failed" in words:
                raise PortClosed(f"nothing listens on port {self._port} of {self._host}")
        return data

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    async def drain(self) -> None:
        await self._stdin.drain()

    def write_eof(self) -> None:
        self._stdin.close()

    def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


def _environment(ours: dict[str, str]) -> dict[str, str]:
    """The user's, with our way to ask. Versions before 8.4 ask by a program only where there is a DISPLAY."""
    return {"DISPLAY": ":0", **os.environ, **ours}


def _private_directory() -> Path:
    """A new directory for the configuration and the helper, where programs may be run.

    :raises ConnectError: when there is no place for one.
    """
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), str(state_dir())]
    for place in filter(None, places):
        try:
            if len(os.fsencode(place)) > MAX_PLACE_BYTES or os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0):
                continue
            return Path(tempfile.mkdtemp(prefix="eagle_console-", dir=place))
        except OSError:
            continue
    raise ConnectError(f"no place for a private directory; tried {', '.join(filter(None, places))}", "set TMPDIR")
