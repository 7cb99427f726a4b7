"""Options of the user's ssh configuration that the console's own SSH does not follow, and that matter.

They are found by asking the system's ssh what it would do (``ssh -G``), and named instead of being ignored in silence.
ControlMaster, forwards and terminal settings are not among them: the console needs none of these.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eagle_console.link import sshconfig
from eagle_console.link.address import parse_address
from eagle_console.link.errors import LinkError
from eagle_console.link.sshconfig import SYSTEM_CONFIG, Effective

REMEDY = 'set transport = "ssh" in the profile: then the system\'s ssh connects, with all of its configuration'

_SHELL_SIGNS = re.compile(r"[|;&<>$`*?]|\|\|")

_SYSTEM_WIDE = (
    "hostname", "user", "port", "proxyjump", "proxycommand", "identityfile", "identityagent", "certificatefile",
    "hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "ciphers", "macs", "kexalgorithms",
    "hostkeyalgorithms", "pubkeyauthentication", "addressfamily", "bindaddress",
)  # fmt: skip
"""What a value in the system's file alone would change; the console does not read that file."""


@dataclass(frozen=True)
class IgnoredOption:
    """An option as the configuration has it, and what it means that the console does not follow it."""

    option: str
    value: str
    consequence: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.option} {self.value}: {self.consequence}".replace(" :", ":")


def ignored(effective: Effective, user_only: Effective | None = None) -> list[IgnoredOption]:
    """The ignored options among what ssh would use for a host. Looks at this machine for what the options name.

    :param user_only: what ssh would use without the system's file; what differs is reported too.
    """
    found = [
        IgnoredOption(name, value, consequence)
        for name, (matters, consequence) in _TABLE.items()
        if (value := effective.first(name.lower())) and matters(value)
    ]
    for key in effective.values.get("identityfile", ()):
        if _is_security_key(key) and not _importable("fido2"):
            found.append(IgnoredOption("IdentityFile", key, "a security key; it needs the Python package fido2 here"))
    if user_only is not None:
        for option in _SYSTEM_WIDE:
            if effective.values.get(option) != user_only.values.get(option):
                value = " ".join(effective.values.get(option, ()))[:200]
                found.append(IgnoredOption(option, value, f"set in {SYSTEM_CONFIG}, which the console does not read"))
    return found


async def scan(address: str) -> list[IgnoredOption]:
    """The ignored options for an address; none where there is no ssh to ask, or it cannot say.

    :param address: as in a profile.
    """
    ssh = sshconfig.find_ssh()
    if ssh is None:
        return []
    try:
        where = parse_address(address)
        sshconfig.require_safe(where)
        with tempfile.TemporaryDirectory(prefix="eagle_console-") as directory:
            files = [_written(directory, "both", True), _written(directory, "user", False)]
            return ignored(*await asyncio.gather(*(sshconfig.read(ssh, file, where) for file in files)))
    except (LinkError, OSError):
        return []


def _written(directory: str, name: str, system: bool) -> Path:
    path = Path(directory, name)
    path.write_text(sshconfig.includes(system))
    return path


def _always(value: str) -> bool:
    return True


def _yes(value: str) -> bool:
    return value.lower() not in ("no", "false")


def _kerberos(value: str) -> bool:
    """Debian's system file says yes to everybody; it matters to those who have a ticket."""
    ticket = os.environ.get("KRB5CCNAME") or os.path.exists(f"/tmp/krb5cc_{os.getuid()}")
    return _yes(value) and bool(ticket) and not _importable("gssapi")


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _is_security_key(path: str) -> bool:
    try:
        return Path(f"{path}.pub").expanduser().read_text(errors="replace").startswith("sk-")
    except OSError:
        return False


_TABLE: dict[str, tuple[Callable[[str], bool], str]] = {
    "GSSAPIAuthentication": (_kerberos, "your Kerberos ticket is not used; it needs the Python package gssapi here"),
    "PKCS11Provider": (
        lambda value: not _importable("pkcs11"),
        "keys on that token are not used; they need the Python package python-pkcs11 here",
    ),
    "ProxyUseFdpass": (_yes, "a proxy command that passes a socket on cannot be used"),
    "ProxyCommand": (
        lambda value: bool(_SHELL_SIGNS.search(value)),
        "it is run without a shell here, so its shell signs mean nothing",
    ),
    "KnownHostsCommand": (_always, "keys that this command prints are not known here"),
    "RevokedHostKeys": (_always, "keys that this file revokes are not refused here"),
    "BindInterface": (_always, "the connection may leave by another interface"),
}
