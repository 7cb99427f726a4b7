"""The address of a host as people write it: an ssh alias, ``user@host:port``, or ``ssh://user@host:port``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eagle_console.link.errors import AddressError

_FORM = re.compile(
    r"(?:ssh://)?"
    r"(?:(?P<user>[^@\s/:\[\]]+)@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^@\s/:\[\]]+))"
    r"(?::(?P<port>\d{1,5}))?/?"
)
_HINT = "write an alias of ~/.ssh/config, user@host:port, or local"


@dataclass(frozen=True)
class Address:
    """Where to connect. What is None is left to the user's ssh configuration."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_address(text: str) -> Address:
    """The address in a text.

    :raises AddressError: when it has none of the three forms.
    """
    match = _FORM.fullmatch(text)
    if match is None or text.startswith("-") or any(ord(character) < 32 for character in text):
        raise AddressError(f"{text!r} is not the address of a host", _HINT)
    host, user = match["v6"] or match["host"], match["user"]
    if host.startswith("-") or (user or "").startswith("-"):
        raise AddressError(f"{text!r} is not the address of a host", _HINT)
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise AddressError(f"{text!r}: there is no port {port}", _HINT)
    return Address(host, user, port)
