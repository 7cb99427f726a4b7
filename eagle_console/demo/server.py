"""The embedded host: an SSH server on loopback that runs commands as the user who started the console.

It is reached, bootstrapped and watched like any other host. Only commands and shells are served, and only to the
demo's own key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncssh

from eagle_console.config import HostProfile
from eagle_console.demo.environment import demo_profile
from eagle_console.demo.exec_session import ExecSession
from eagle_console.demo.home import demo_home
from eagle_console.demo.keys import DemoKeys, load_keys
from eagle_console.demo.workspace import create_workspace

ADDRESS = "127.0.0.1"
USER = "demo"
RECORDINGS = Path(__file__).parent / "recordings"

_CLOSE_SECONDS = 12.0  # longer than a command has after the end of its connection
_LOGIN_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
)  # fmt: skip


class DemoHost:
    """The embedded host, while its context lasts. Its workspace and jobs outlive it; several at once are fine.

    :ivar port: the port on 127.0.0.1, chosen by the system.
    :ivar profile: how the console reaches and uses it.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home or demo_home()
        self._keys: DemoKeys | None = None
        self._listener: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ADDRESS
        self.user = USER
        self.port = 0
        self.profile = HostProfile(name="demo", address="demo")

    @property
    def client_key(self) -> asyncssh.SSHKey:
        """The private key that the host accepts."""
        assert self._keys is not None, "the demo host is not entered"
        return self._keys.client

    @property
    def host_key(self) -> str:
        """The host's public key in OpenSSH's format, for a known_hosts entry."""
        assert self._keys is not None, "the demo host is not entered"
        return self._keys.host.export_public_key().decode().strip()

    async def __aenter__(self) -> Self:
        self._keys = keys = await asyncio.to_thread(_prepare, self._home)
        self.profile = demo_profile(self._home)
        environment = login_environment(self._home, os.environ, replays=self.profile.python is None)
        self._listener = await asyncssh.listen(
            ADDRESS,
            0,
            server_host_keys=[keys.host],
            server_factory=lambda: _Server(keys.client, environment, self._connections, self._tasks),
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            allow_scp=False,
            gss_host=None,
            login_timeout=10,
        )
        self.port = self._listener.get_port()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener:
            self._listener.close()
            await self._listener.wait_closed()
        for connection in list(self._connections):
            connection.abort()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_SECONDS)


class _Server(asyncssh.SSHServer):
    """One connection: one key is accepted, one kind of session is made; asyncssh refuses forwards by itself.

    :param connections, tasks: what the host has to end at its own end.
    """

    def __init__(
        self,
        client_key: asyncssh.SSHKey,
        environment: Mapping[str, str],
        connections: set[asyncssh.SSHServerConnection],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._client_key = client_key
        self._environment = environment
        self._connections = connections
        self._tasks = tasks
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection:
            self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == USER and key.public_data == self._client_key.public_data

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return ExecSession(self._environment, str(Path.home()), self._tasks)


def login_environment(home: Path, user: Mapping[str, str], replays: bool) -> dict[str, str]:
    """The environment of a command: few variables of the user's, as after an SSH login, and the demo's own.

    Caches and state go into the demo's folder: a demo writes nothing into the user's home.

    :param replays: recorded runs stand in for stages, since there is no pipeline environment.
    """
    environment = {name: user[name] for name in _LOGIN_VARIABLES if name in user}
    environment |= {
        "EAGLE_CONSOLE_DEMO": "1",
        "EAGLE_CONSOLE_SIMULATE_GPUS": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    if replays:
        environment["EAGLE_CONSOLE_REPLAY"] = str(RECORDINGS)
    return environment


def _prepare(home: Path) -> DemoKeys:
    create_workspace(home)
    return load_keys(home)
