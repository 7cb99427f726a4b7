"""The SSH transport: asyncssh with the user's own ssh configuration, keys and agent.

Jump hosts are connected one by one here rather than by asyncssh, so that each of their host keys is checked like that
of the host itself, and each of their questions says who asks. Nothing is forwarded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh

from eagle_console.link import hostkeys, limits, sshoptions
from eagle_console.link.address import Address, parse_address
from eagle_console.link.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLost,
    HostKeyError,
    LinkError,
    PortClosed,
    PromptCancelled,
    UnknownHostKey,
    forwarding_refused,
)
from eagle_console.link.login import Login
from eagle_console.link.prompts import Nobody, PatientPrompter, Prompter
from eagle_console.link.transport import CLOSE_SECONDS, READ_BYTES, Channel, Reading, Writing

CONNECT_SECONDS = 15.0
"""For one login, without the time in which a question is open."""

REACH_SECONDS = 5.0
"""For the TCP connection alone. Then it is begun anew, since TCP by itself asks ever more rarely."""

REACH_TRIES = 3

KEEPALIVE_SECONDS = 5
KEEPALIVE_COUNT = 3
"""A link that is silent for 20 s is lost: asyncssh waits for one interval more than the count."""

MAX_JUMPS = 8


class AsyncsshTransport:
    """One SSH connection to a host, made when the context is entered.

    :param address: an alias of the user's ssh configuration, ``user@host:port``, or ``ssh://user@host:port``.
    :param name: the host's name in commands that are proposed to the user; the address where it has no profile.
    :param prompter: is asked for passphrases, passwords and codes; by default there is nobody to ask.
    :param passphrases: right ones by key file, kept by the caller for the next connection.
    """

    def __init__(
        self,
        address: str,
        name: str | None = None,
        prompter: Prompter | None = None,
        passphrases: dict[str, str] | None = None,
    ) -> None:
        self._text = address
        self._address = parse_address(address)
        self._name = name or address
        self._person = _Person(prompter or Nobody(), {} if passphrases is None else passphrases)
        self._options: dict[str, Any] | None = None
        self._stack = AsyncExitStack()
        self._connection: asyncssh.SSHClientConnection | None = None

    @classmethod
    def pinned(cls, host: str, port: int, username: str, host_key: str, client_key: asyncssh.SSHKey) -> Self:
        """A transport to a server whose one host key is known beforehand, without the user's ssh configuration.

        :param host_key: in OpenSSH's public key format.
        """
        transport = cls(f"{username}@{host}:{port}")
        transport._options = {
            "config": None,
            "known_hosts": asyncssh.import_known_hosts(f"{hostkeys.pattern(host, port)} {host_key}"),
            "client_keys": [client_key],
            "agent_path": None,
        }
        return transport

    async def __aenter__(self) -> Self:
        try:
            if self._options is None:
                self._connection = await _dial(self._address, self._person, self._stack)
            else:
                self._connection = await _connect(self._address, self._person, self._options, [], self._stack)
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, UnknownHostKey):
                raise UnknownHostKey(error.question, self._name) from None
            if isinstance(error, (AuthenticationError, ConnectError)) and not isinstance(error, PromptCancelled):
                await self._name_ignored_options(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _name_ignored_options(self, error: LinkError) -> None:
        """Adds to the remedy which ssh options could be the reason, since they are not followed here."""
        found = await sshoptions.scan(self._text) if self._options is None else []
        if found:
            names = ", ".join(dict.fromkeys(option.option for option in found))
            error.remedy += f"; not followed here: {names} of your ssh configuration; {sshoptions.REMEDY}"

    async def open(self, command: str) -> Channel:
        assert self._connection is not None, "the transport is not entered"
        try:
            process = await self._connection.create_process(
                command, stdin=asyncssh.PIPE, encoding=None, request_pty=False, x11_forwarding=False
            )
        except (asyncssh.Error, OSError) as error:
            raise ConnectionLost(f"{self._address.host} does not run commands for us: {_reason(error)}") from None
        return _SshChannel(process, self._address.host)

    async def open_port(self, port: int) -> tuple[Reading, Writing]:
        assert self._connection is not None, "the transport is not entered"
        host = self._address.host
        try:
            reader, writer = await self._connection.open_connection("127.0.0.1", port)
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_CONNECT_FAILED:
                raise PortClosed(f"nothing listens on port {port} of {host}") from None
            raise forwarding_refused(host) from None
        except (asyncssh.Error, OSError) as error:
            raise ConnectionLost(f"the connection to {host} is lost: {_reason(error)}") from None
        return reader, writer

    async def shell(self, words: Sequence[str]) -> int:
        from eagle_console.link import shell  # only here: the agent's link needs no terminal

        assert self._connection is not None, "the transport is not entered"
        return await shell.over_ssh(self._connection, self._address.host, words)


@dataclass(frozen=True)
class _Person:
    """Who answers questions, and what was answered before."""

    prompter: Prompter
    passphrases: dict[str, str]


async def _dial(
    address: Address,
    person: _Person,
    stack: AsyncExitStack,
    tunnel: asyncssh.SSHClientConnection | None = None,
    jumps: int = 0,
) -> asyncssh.SSHClientConnection:
    """Connects as the user's ssh configuration says, through its jump hosts."""
    config = _read_config(address)
    if tunnel is None and isinstance(config.tunnel, str) and config.tunnel.lower() != "none":
        if jumps >= MAX_JUMPS:
            raise ConnectError(f"{address.host}: more than {MAX_JUMPS} jump hosts", "look for a circle of ProxyJump")
        for hop in config.tunnel.split(","):
            tunnel = await _dial(parse_address(hop.strip()), person, stack, tunnel, jumps + 1)
    configured = config.known_hosts if isinstance(config.known_hosts, list) else []
    files = hostkeys.sources(name for name in configured if isinstance(name, str))
    options: dict[str, Any] = {"known_hosts": hostkeys.read_known(files), "tunnel": tunnel}
    return await _connect(replace(address, user=str(config.username)), person, options, files, stack)


def _read_config(address: Address) -> asyncssh.SSHClientConnectionOptions:
    options: dict[str, Any] = {"host": address.host, "config": ()}  # () is the user's own file, as in ``connect``
    if address.user is not None:
        options["username"] = address.user
    if address.port is not None:
        options["port"] = address.port
    try:
        return asyncssh.SSHClientConnectionOptions(**options)
    except (asyncssh.ConfigParseError, asyncssh.KeyImportError, OSError, ValueError) as error:
        raise ConnectError(f"{address.host}: the ssh configuration cannot be used: {error}") from None


async def _connect(
    address: Address, person: _Person, options: dict[str, Any], files: Sequence[Path], stack: AsyncExitStack
) -> asyncssh.SSHClientConnection:
    login = Login(address.host, address.user or "", person.prompter, person.passphrases)
    try:
        connection = await _attempt(address, person, options, login)
    except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
        if isinstance(error, asyncssh.HostKeyNotVerifiable) and (login.seen or not login.certificate):
            raise _host_key_error(address, login, files, error) from None
        # The host has a certificate that nobody we know has signed, or none where an authority is known.
        login = Login(address.host, address.user or "", person.prompter, person.passphrases)
        try:
            plain = {**options, "server_host_key_algs": hostkeys.PLAIN_ALGORITHMS}
            connection = await _attempt(address, person, plain, login)
        except asyncssh.HostKeyNotVerifiable as again:
            raise _host_key_error(address, login, files, again) from None
        except (asyncssh.Error, OSError, TimeoutError) as again:
            raise _typed(address, login, again) from None
    except (asyncssh.Error, OSError, TimeoutError, ValueError) as error:
        raise _typed(address, login, error) from None
    stack.push_async_callback(_close, connection)
    return connection


async def _attempt(
    address: Address, person: _Person, options: dict[str, Any], login: Login
) -> asyncssh.SSHClientConnection:
    where: dict[str, Any] = {"host": address.host}
    if address.user is not None:
        where["username"] = address.user
    if address.port is not None:
        where["port"] = address.port
    patient = PatientPrompter(person.prompter)
    login.prompter = patient

    async def log_in() -> asyncssh.SSHClientConnection:
        for _ in range(REACH_TRIES - 1):
            try:
                return await once()
            except TimeoutError:
                if login.reached:
                    raise
        return await once()

    async def once() -> asyncssh.SSHClientConnection:
        # asyncssh's own timeouts would count the time that a person needs to answer.
        async with patient.timeout(CONNECT_SECONDS), asyncio.timeout(REACH_SECONDS) as reaching:

            def reached() -> Login:  # asyncssh calls it when the TCP connection is there
                reaching.reschedule(None)
                return login

            connection = await asyncssh.connect(
                **where,
                client_factory=reached,
                connect_timeout=None,
                login_timeout=0,
                keepalive_interval=KEEPALIVE_SECONDS,
                keepalive_count_max=KEEPALIVE_COUNT,
                agent_forwarding=False,
                x509_trusted_certs=None,
                passphrase=login.passphrase,
                **options,
            )
            if login.stopped is not None:  # a connection that we abort ourselves counts as made
                raise login.stopped
            return connection

    def dropped(error: Exception) -> bool:
        return isinstance(error, (asyncssh.ConnectionLost, ConnectionResetError)) and not login.begun

    return await limits.limited((address.host, address.port), log_in, dropped)


def _host_key_error(
    address: Address, login: Login, files: Sequence[Path], error: asyncssh.HostKeyNotVerifiable
) -> HostKeyError:
    if login.seen is not None:
        return hostkeys.verdict(login.seen, files)
    if "revoked" in str(error):
        return hostkeys.revoked(address.host)
    return HostKeyError(f"the host key of {address.host} cannot be verified: {error}")


def _typed(address: Address, login: Login, error: Exception) -> LinkError:
    """Our error for one of asyncssh's or of the operating system's."""
    host = address.host
    if login.stopped is not None:
        return login.stopped
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in str(error):
        if login.unasked is not None:
            return login.unasked
        user = f" for {address.user}" if address.user else ""
        return AuthenticationError(
            f"{host} refuses the login{user}: {_reason(error)}",
            f"try: ssh {address.user + '@' if address.user else ''}{host}; a key with a passphrase needs ssh-add first",
        )
    if isinstance(error, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        return AuthenticationError(f"a key for {host} cannot be used: {error}", "ssh-add it, or name another key")
    if isinstance(error, socket.gaierror):
        return ConnectError(f"there is no host named {host}", "check the address, or the VPN and the name server")
    if isinstance(error, TimeoutError):
        seconds = CONNECT_SECONDS if login.reached else REACH_TRIES * REACH_SECONDS
        return ConnectError(f"{host} did not answer in {seconds:g} s", f"try: ssh {host}")
    if isinstance(error, ConnectionRefusedError):
        return ConnectError(f"{host} refuses the connection: no SSH server on that port", "check the port")
    return ConnectError(f"no connection to {host}: {_reason(error)}", f"try: ssh {host}")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", "") or getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    try:
        await asyncio.wait_for(connection.wait_closed(), CLOSE_SECONDS)
    except TimeoutError:
        connection.abort()


class _SshChannel(Channel):
    def __init__(self, process: asyncssh.SSHClientProcess[bytes], host: str) -> None:
        super().__init__()
        self._process = process
        self._host = host
        self._pump = asyncio.create_task(self._read_stderr())

    async def _read(self, count: int) -> bytes:
        try:
            data: bytes = await self._process.stdout.read(count)
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from None
        return data

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise self._lost(error) from None

    async def wait(self) -> int | None:
        await self._process.wait_closed()
        return self._process.exit_status

    async def close(self) -> None:
        try:
            self._process.stdin.write_eof()
            await asyncio.wait_for(self._process.wait_closed(), CLOSE_SECONDS)
        except (TimeoutError, asyncssh.Error, OSError):
            pass
        await self.abort()

    async def abort(self) -> None:
        self._process.close()
        self._pump.cancel()

    async def _read_stderr(self) -> None:
        try:
            while data := await self._process.stderr.read(READ_BYTES):
                self.stderr.add(data)
        except (asyncssh.Error, OSError):
            pass  # the reader of stdout reports it

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._host} is lost: {_reason(error)}")
