"""The embedded host's key and the one key it accepts, made once and kept in the demo's folder."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import asyncssh


@dataclass(frozen=True)
class DemoKeys:
    """Both are ed25519 private keys, readable by their owner alone."""

    host: asyncssh.SSHKey
    client: asyncssh.SSHKey


def load_keys(home: Path) -> DemoKeys:
    """The keys below the demo's folder, made where they are missing; several processes may do this at once."""
    folder = home / "keys"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return DemoKeys(_key(folder / "host_key", "demo host"), _key(folder / "client_key", "demo client"))


def _key(path: Path, comment: str) -> asyncssh.SSHKey:
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by the owner alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key.export_private_key())
            os.link(temporary, path)  # never replaces a key that another process has made meanwhile
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
    return asyncssh.read_private_key(path)
