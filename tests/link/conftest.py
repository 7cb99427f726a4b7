"""A console with a home of its own, and real ssh servers to connect to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from link.sshd import SshServer, introduce, ssh_server


@pytest.fixture
def console_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home on the console's side: no keys, no known hosts, no agent of the machine."""
    home = tmp_path / "console"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for name in ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[Callable[..., SshServer]]:
    """Starts servers that end with the test: ``start_sshd(name="host", **options of ssh_server)``."""
    with ExitStack() as stack:

        def start(name: str = "host", **options: Any) -> SshServer:
            return stack.enter_context(ssh_server(tmp_path / name, **options))

        yield start


@pytest.fixture
def sshd(start_sshd: Callable[..., SshServer], console_home: Path) -> SshServer:
    """A server that the console knows and has the key to."""
    server = start_sshd()
    introduce(server, console_home)
    return server
