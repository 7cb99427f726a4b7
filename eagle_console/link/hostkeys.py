"""Whether a host is the one it should be: known_hosts, and the question where a host was never seen.

Known keys come from the files of the user's ssh configuration (``UserKnownHostsFile``, ``GlobalKnownHostsFile``), the
system's file, and our own file, the only one that we write. ``UserKnownHostsFile none`` and ``StrictHostKeyChecking
no`` do not turn the check off here. Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from eagle_console.config import state_dir
from eagle_console.link.errors import ChangedHostKey, HostKeyError, UnknownHostKey
from eagle_console.state import HostKeyQuestion

SSH_PORT = 22

PLAIN_ALGORITHMS = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
"""Host key algorithms without certificates, for a host whose certificate no known authority has signed."""


@dataclass(frozen=True)
class SeenKey:
    """A host key that was shown and is not trusted: for the name or alias looked up, at the address connected to."""

    host: str
    address: str
    port: int
    key: asyncssh.SSHKey


def known_hosts_path() -> Path:
    """Our own file of trusted host keys."""
    return state_dir() / "known_hosts"


def sources(configured: Iterable[str] = ()) -> list[Path]:
    """The known_hosts files to use, in order.

    :param configured: the files that the user's ssh configuration names.
    """
    names = [os.path.expanduser(name) for name in configured]
    defaults = ["~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"]
    names += [os.path.expanduser(name) for name in defaults]
    return list(dict.fromkeys([*map(Path, names), known_hosts_path()]))


def read_known(files: Sequence[Path]) -> asyncssh.SSHKnownHosts:
    """The trusted keys in all the files that exist. A line that cannot be read counts for nothing.

    :raises HostKeyError: when a file is there and cannot be read: it may hold a revocation.
    """
    known = asyncssh.import_known_hosts("")
    for _, _, line in _lines(files):
        try:
            known.load(line)
        except ValueError:
            continue
    return known


def verdict(seen: SeenKey, files: Sequence[Path]) -> HostKeyError:
    """Why a key that was shown is not trusted: another one is known, or none is.

    :param files: those that were used for the connection.
    """
    name = pattern(seen.host, seen.port)
    shown = f"{_name_of(seen.key)} {seen.key.get_fingerprint()}"
    place = _known_at(seen, files)
    if place is None:
        question = HostKeyQuestion(
            seen.host, seen.port, _name_of(seen.key), seen.key.get_fingerprint(), f"{name} {_key_text(seen.key)}"
        )
        return UnknownHostKey(question, seen.host)
    path, number = place
    return ChangedHostKey(
        f"the host key of {name} has changed: it shows {shown}, another key is in {path} line {number}. "
        "Someone may be listening in, or the host was set up anew",
        f"ask whoever runs the host; if the new key is right: ssh-keygen -R '{name}' -f '{path}'",
    )


def revoked(host: str) -> ChangedHostKey:
    """The refusal of a key that a known_hosts file marks as revoked."""
    return ChangedHostKey(f"the host key of {host} is marked as revoked", "ask whoever runs the host for its new key")


def trust(question: HostKeyQuestion) -> Path:
    """Adds the key that a person accepted to our own known_hosts file, and gives its path.

    :raises HostKeyError: when it cannot be written.
    """
    path = known_hosts_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(f"{question.known_hosts_line}\n".encode())
    except OSError as error:
        raise HostKeyError(f"{path} cannot be written: {error.strerror}") from None
    return path


def pattern(host: str, port: int) -> str:
    """A host as known_hosts files name it."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def _known_at(seen: SeenKey, files: Sequence[Path]) -> tuple[Path, int] | None:
    """File and line of the first plain key that is known for the host."""
    port = None if seen.port == SSH_PORT else seen.port
    for path, number, line in _lines(files):
        try:
            matched = asyncssh.import_known_hosts(line).match(seen.host, seen.address, port)
        except ValueError:
            continue
        if matched[0]:
            return path, number
    return None


def _lines(files: Sequence[Path]) -> Iterable[tuple[Path, int, str]]:
    for path in files:
        try:
            text = path.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise HostKeyError(f"{path} cannot be read: {error.strerror}", f"chmod u+r {path}") from None
        for number, line in enumerate(text.splitlines(), 1):
            yield path, number, line


def _name_of(key: asyncssh.SSHKey) -> str:
    return key.get_algorithm()


def _key_text(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key("openssh").decode().split()[:2])
