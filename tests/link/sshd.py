"""A real OpenSSH server on a loopback port: own configuration, keys and home, nothing of the machine's is touched.

It runs as the user of the tests. The shell that it starts gets a home and a cache of its own, so that each server is a
host of its own to the agent.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.ml_environment import free_port

from eagle_console.config import HostProfile
from eagle_console.link.connect import Target
from remote.procfs import descendants

START_SECONDS = 10.0

KEYS_ONLY = "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
PASSWORDS_ONLY = "PasswordAuthentication yes\nPermitRootLogin yes\nPubkeyAuthentication no\n"
"""Asks for a password; no password of this machine's users is known to the tests, so each is wrong."""


@dataclass
class SshServer:
    """A running server. ``home`` is the home directory that its sessions see, ``identity`` the key that may log in."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"{getpass.getuser()}@{self.host}:{self.port}"

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def identity(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def cache(self) -> Path:
        """Where the agents of this host are stored."""
        return self.home / ".cache" / "eagle_console" / "agents"

    @property
    def host_key(self) -> str:
        """The host's public key: algorithm and data."""
        return " ".join((self.directory / "host_ed25519.pub").read_text().split()[:2])

    @property
    def fingerprint(self) -> str:
        listed = ssh_keygen("-lf", str(self.directory / "host_ed25519.pub"))
        return listed.split()[1]

    @property
    def known_hosts_line(self) -> str:
        return f"[{self.host}]:{self.port} {self.host_key}\n"

    def drop_connections(self) -> None:
        """Kills the server's side of every connection; what runs on the host is left alone."""
        self._signal_connections(signal.SIGKILL)

    def freeze_connections(self) -> None:
        """Stops the server's side of every connection: the console gets no answer and no end."""
        self._signal_connections(signal.SIGSTOP)

    def thaw_connections(self) -> None:
        """Ends what ``freeze_connections`` began."""
        self._signal_connections(signal.SIGCONT)

    def _signal_connections(self, number: signal.Signals) -> None:
        for process in descendants([self.process.pid]):
            if process.comm.startswith("sshd"):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def log(self) -> str:
        return (self.directory / "sshd.log").read_text(errors="replace")


@contextmanager
def ssh_server(
    directory: Path,
    *,
    config: str = "",
    logins: str = KEYS_ONLY,
    authorized_options: str = "",
    path: str | None = None,
    environment: dict[str, str] | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    enter: Sequence[str] = (),
) -> Iterator[SshServer]:
    """Runs a server until the context ends.

    :param config: more lines of ``sshd_config``.
    :param logins: its lines about ways to log in.
    :param authorized_options: options in front of the key, such as ``command="..."``.
    :param path: PATH of the sessions; by default it leads to this interpreter's Python.
    :param environment: more variables of the sessions.
    :param port: by default a free one.
    :param host: the address to listen on.
    :param enter: words in front of the server's command, which lead to where that address is.
    """
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if sshd is None:
        raise RuntimeError("there is no sshd on this machine: apt-get install openssh-server")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "home").mkdir(exist_ok=True)
    for name in ("host_ed25519", "id_ed25519"):
        if not (directory / name).exists():
            ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(directory / name))
    port = port or free_port()
    public = (directory / "id_ed25519.pub").read_text()
    (directory / "authorized_keys").write_text(f"{authorized_options} {public}".lstrip())
    (directory / "authorized_keys").chmod(0o600)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    variables = {
        "HOME": str(directory / "home"),
        "XDG_CACHE_HOME": str(directory / "home" / ".cache"),
        "PATH": path or f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin",
        **(environment or {}),
    }
    (directory / "sshd_config").write_text(
        f"Port {port}\n"
        f"ListenAddress {host}\n"
        f"HostKey {directory}/host_ed25519\n"
        f"PidFile {directory}/sshd.pid\n"
        f"AuthorizedKeysFile {directory}/authorized_keys\n"
        f"{logins}"
        "StrictModes no\nUsePAM no\nKbdInteractiveAuthentication no\nPrintMotd no\nLogLevel VERBOSE\n"
        f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        f"{config}\n"
    )
    with (directory / "sshd.log").open("ab") as log:
        process = subprocess.Popen(
            [*enter, sshd, "-D", "-e", "-f", str(directory / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    server = SshServer(directory, port, process, host)
    try:
        _wait_until_open(server)
        yield server
    finally:
        server.drop_connections()
        process.terminate()
        process.wait(10)


def introduce(server: SshServer, console_home: Path) -> None:
    """Gives the console the key to a server, and the server's host key."""
    shutil.copy(server.identity, console_home / ".ssh" / "id_ed25519")
    with (console_home / ".ssh" / "known_hosts").open("a") as known:
        known.write(server.known_hosts_line)


def target(server: SshServer, workspace: Path | None = None, **profile: Any) -> Target:
    values = {"name": "box", "address": server.address, "workspace": str(workspace) if workspace else None, **profile}
    return Target(HostProfile(**values))


def _wait_until_open(server: SshServer) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((server.host, server.port), timeout=1).close()
            return
        except OSError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start:\n{server.log()}") from None
            time.sleep(0.02)


def ssh_keygen(*argv: str) -> str:
    return subprocess.run(["ssh-keygen", *argv], check=True, capture_output=True, text=True).stdout
