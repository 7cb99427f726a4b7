"""The system's ``ssh`` and its configuration: what it makes of it for a host, and what the console adds.

The console gives ssh a configuration file of its own that says first what must hold, for jump hosts too, then includes
the user's and the system's file as they are, and ends with what holds where neither says anything. For every option
the first value wins (ssh_config(5)); options on ssh's command line would not reach its jump hosts.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle_console.link import hostkeys
from eagle_console.link.address import Address, parse_address
from eagle_console.link.errors import AddressError, ConnectError
from eagle_console.link.prompts import ATTEMPTS
from eagle_console.text import clean

SYSTEM_CONFIG = "/etc/ssh/ssh_config"

MAX_JUMPS = 8

_FORCED = (
    "StrictHostKeyChecking yes",
    "VerifyHostKeyDNS no",
    "NoHostAuthenticationForLocalhost no",
    "UpdateHostKeys no",
    "ForwardAgent no",
    "ForwardX11 no",
    "PermitLocalCommand no",
    "LogLevel INFO",
    f"NumberOfPasswordPrompts {ATTEMPTS}",
)
_DEFAULTS = ("ServerAliveInterval 5", "ServerAliveCountMax 3", "ConnectTimeout 15")

_SAFE_HOST = re.compile(r"[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]*")
_SAFE_USER = re.compile(r"[A-Za-z0-9_.+@][A-Za-z0-9_.+@-]*")

_G_SECONDS = 10.0


@dataclass(frozen=True)
class Effective:
    """What ssh uses for one host: option names in lower case with all their values, as ``ssh -G`` prints them."""

    values: dict[str, tuple[str, ...]]

    def first(self, option: str) -> str:
        """The first value of an option; empty where it has none or ``none``."""
        value = self.values.get(option, ("",))[0]
        return "" if value.lower() == "none" else value

    @property
    def known_name(self) -> tuple[str, int]:
        """Name and port under which known_hosts files know the host; an alias stands for itself, without a port."""
        alias = self.first("hostkeyalias")
        return (alias, hostkeys.SSH_PORT) if alias else (self.first("hostname"), int(self.first("port") or 22))

    @property
    def known_hosts(self) -> list[str]:
        """The user's known_hosts files."""
        return self.first("userknownhostsfile").split()


@dataclass(frozen=True)
class Hop:
    """A host on the way, the last one being the destination itself."""

    address: Address
    effective: Effective


def find_ssh() -> str | None:
    """The system's ssh; None where there is none."""
    return shutil.which("ssh")


def require_safe(address: Address) -> None:
    """Refuses names that ssh, or a ProxyCommand that it runs by a shell, could read as something else.

    CVE-2023-51385 and its like: ``%h`` and ``%r`` of a configuration are put into shell commands.

    :raises AddressError: for such a name.
    """
    if not _SAFE_HOST.fullmatch(address.host) or not (address.user is None or _SAFE_USER.fullmatch(address.user)):
        name = f"{address.user}@{address.host}" if address.user else address.host
        raise AddressError(
            f"{name!r} has characters that are not safe on ssh's command line",
            "name the host by an alias of letters, digits, dots and dashes in ~/.ssh/config",
        )


def destination(address: Address) -> list[str]:
    """The words that name a host on ssh's command line, options included; nothing in them is read as an option."""
    port = [] if address.port is None else ["-p", str(address.port)]
    return [*port, "--", f"{address.user}@{address.host}" if address.user else address.host]


def jump_word(address: Address) -> str:
    """A host as ``-J`` wants it."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return (f"{address.user}@" if address.user else "") + host + (f":{address.port}" if address.port else "")


def includes(system: bool = True) -> str:
    """The user's and, with ``system``, the system's configuration as they are, in ssh's own order."""
    files = [_quoted(Path.home() / ".ssh" / "config"), *([SYSTEM_CONFIG] if system else [])]
    return "".join(f"Include {file}\n" for file in files)


def configuration(known_hosts: Sequence[Path]) -> str:
    """The text of the console's configuration file.

    :param known_hosts: the files with the keys that count as known.
    """
    lines = ["Host *", *(f"  {line}" for line in _FORCED)]
    lines.append("  UserKnownHostsFile " + " ".join(_quoted(path, percent=True) for path in known_hosts))
    return "\n".join([*lines, includes(), "Host *", *(f"  {line}" for line in _DEFAULTS), ""])


async def read(ssh: str, config: Path, address: Address) -> Effective:
    """What ssh makes of a configuration file for a host.

    :raises ConnectError: when ssh cannot read it.
    """
    argv = [ssh, "-G", "-F", str(config), *destination(address)]
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _G_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ConnectError(
            f"ssh -G {address.host} did not end in {_G_SECONDS:g} s", "look for a slow Match exec in ~/.ssh/config"
        ) from None
    if process.returncode != 0:
        words = clean(err.decode(errors="replace").strip(), 500)
        raise ConnectError(f"{address.host}: the ssh configuration cannot be used: {words}", f"try: ssh {address.host}")
    return Effective(_parse(out.decode(errors="replace").splitlines()))


async def way(ssh: str, config: Path, address: Address, depth: int = 0) -> list[Hop]:
    """The hosts on the way to a host, itself the last.

    :raises ConnectError: for a configuration that cannot be read, or too many jump hosts.
    :raises AddressError: for a name that is not safe to use.
    """
    require_safe(address)
    effective = await read(ssh, config, address)
    hops: list[Hop] = []
    for word in filter(None, effective.first("proxyjump").split(",")):
        hop = parse_address(word.strip())
        require_safe(hop)
        if depth + len(hops) >= MAX_JUMPS:
            raise ConnectError(f"{address.host}: more than {MAX_JUMPS} jump hosts", "look for a circle of ProxyJump")
        if hops:
            hops.append(Hop(hop, await read(ssh, config, hop)))
        else:  # only the first one may have jump hosts of its own
            hops = await way(ssh, config, hop, depth + 1)
    return [*hops, Hop(address, effective)]


def _parse(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    for line in lines:
        option, _, value = line.partition(" ")
        values[option.lower()] = (*values.get(option.lower(), ()), value.strip())
    return values


def _quoted(path: Path, percent: bool = False) -> str:
    text = str(path).replace("%", "%%") if percent else str(path)
    if '"' in text or not text.isprintable():
        raise ConnectError(f"ssh cannot be given the path {text!r}", "use a home directory without quotes in its name")
    return f'"{text}"'
