"""An SSH server that wants a password or one-time codes; asyncssh's own, in this process.

OpenSSH's server asks such questions only through PAM, which would need changes to this machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from eagle_console.demo.exec_session import ExecSession

USER = "engineer"

Round = tuple[str, str, Sequence[tuple[str, bool]]]
"""What one round shows: name, instructions, and its questions with their echo flags."""


@dataclass
class Script:
    """What the server wants, and what it got.

    :ivar rounds: of keyboard-interactive, with the right answers of each; empty: the method is not offered.
    :ivar patience: seconds for the whole login.
    """

    password: str | None = None
    rounds: Sequence[tuple[Round, Sequence[str]]] = ()
    patience: float = 60.0
    passwords: list[str] = field(default_factory=list)
    answers: list[Sequence[str]] = field(default_factory=list)
    logins: int = 0
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)


@dataclass(frozen=True)
class AskingServer:
    port: int
    script: Script
    known_hosts_line: str

    @property
    def address(self) -> str:
        return f"{USER}@127.0.0.1:{self.port}"

    def drop_connections(self) -> None:
        for connection in list(self.script.connections):
            connection.abort()


class _Server(asyncssh.SSHServer):
    def __init__(self, script: Script, home: Path, tasks: set[asyncio.Task[None]]) -> None:
        self._script, self._home, self._tasks = script, home, tasks
        self._round = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._script.connections.add(conn)

    def begin_auth(self, username: str) -> bool:
        return True

    def auth_completed(self) -> None:
        self._script.logins += 1

    def public_key_auth_supported(self) -> bool:
        return False

    def password_auth_supported(self) -> bool:
        return self._script.password is not None

    def validate_password(self, username: str, password: str) -> bool:
        self._script.passwords.append(password)
        return password == self._script.password

    def kbdint_auth_supported(self) -> bool:
        return bool(self._script.rounds)

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> tuple[str, str, str, object]:
        self._round = 0
        return self._challenge()

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> object:
        self._script.answers.append(tuple(responses))
        if tuple(responses) != tuple(self._script.rounds[self._round][1]):
            return False
        self._round += 1
        return True if self._round == len(self._script.rounds) else self._challenge()

    def _challenge(self) -> tuple[str, str, str, object]:
        name, instructions, questions = self._script.rounds[self._round][0]
        return name, instructions, "en", list(questions)

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        environment = {"HOME": str(self._home), "PATH": f"{Path(sys.executable).resolve().parent}:{os.defpath}"}
        return ExecSession(environment, str(self._home), self._tasks)


@asynccontextmanager
async def asking_server(home: Path, script: Script) -> AsyncIterator[AskingServer]:
    """Runs a server until the context ends.

    :param home: the home directory of its sessions.
    """
    await asyncio.to_thread(home.mkdir, exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    tasks: set[asyncio.Task[None]] = set()
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[key],
        server_factory=lambda: _Server(script, home, tasks),
        login_timeout=script.patience,
        encoding=None,
    )
    public = key.export_public_key("openssh").decode().strip()
    try:
        yield AskingServer(listener.get_port(), script, f"[127.0.0.1]:{listener.get_port()} {public}\n")
    finally:
        listener.close()
        await listener.wait_closed()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
