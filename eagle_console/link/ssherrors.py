"""What ssh says on its stderr when it fails, as our errors. Pure. The wording is OpenSSH's, 8.4 to 10."""

from __future__ import annotations

import re

from eagle_console.link.errors import AuthenticationError, ChangedHostKey, ConnectError, HostKeyError, LinkError
from eagle_console.text import clean_lines

FAILED = 255
"""ssh's own exit status for every failure of its own; others are those of the remote command."""

_UNKNOWN_KEY = re.compile(r"No \S+ host key is known for (\S+) and you have requested strict checking")
_OFFENDING = re.compile(r"Offending \S+ key in (.+):(\d+)\s")
_CHANGED = re.compile(r"Host key for (\S+) has changed and you have requested strict checking")
_FINGERPRINT = re.compile(r"(SHA256:[A-Za-z0-9+/]+)")
_DENIED = re.compile(r"(\S+): Permission denied \(([^)]*)\)")
_NOT_RESOLVED = re.compile(r"Could not resolve hostname (\S+):")
_NO_COMMON = re.compile(r"no matching (.+?) found\. Their offer: ([^\r\n]*)")
_BANNER = re.compile(r"^(Warning: Permanently added .*|\*\* .*|Pseudo-terminal will not be allocated.*)$")


def unknown_key_of(words: str) -> str | None:
    """The host, as known_hosts files name it, whose key ssh does not know and has refused for that."""
    found = _UNKNOWN_KEY.search(words)
    return found[1] if found else None


def was_closed(words: str) -> bool:
    """Whether the host ended the connection."""
    return (
        re.search(r"Connection (to \S+ )?(closed|reset)|Broken pipe|Too many authentication failures", words)
        is not None
    )


def last_line(words: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in clean_lines(words, 300) if line.strip()]
    return next((line for line in reversed(lines) if not _BANNER.match(line)), "")


def explain(words: str, host: str) -> LinkError:
    """Our error for the end of an ssh that did not get to the command.

    :param words: its stderr.
    :param host: the name to use in messages.
    """
    if (changed := _changed_key(words)) is not None:
        return changed
    if (denied := _DENIED.search(words)) is not None:
        return AuthenticationError(
            f"{denied[1]} refuses the login; it would take: {denied[2]}", f"try: ssh {denied[1]}; ssh-add loads a key"
        )
    if "Too many authentication failures" in words:
        return AuthenticationError(
            f"{host} refuses the login: too many keys were offered",
            "set IdentitiesOnly yes and IdentityFile for it in ~/.ssh/config",
        )
    if (unresolved := _NOT_RESOLVED.search(words)) is not None:
        return ConnectError(
            f"there is no host named {unresolved[1]}", "check the address, or the VPN and the name server"
        )
    if (offer := _NO_COMMON.search(words)) is not None:
        return ConnectError(
            f"{host} and this ssh have no {offer[1]} in common; it offers {offer[2]}",
            "allow one of them in ~/.ssh/config, for this host only",
        )
    if "Bad configuration option" in words or "Bad owner or permissions" in words or "bad configuration" in words:
        return ConnectError(f"{host}: ssh cannot use its configuration: {last_line(words)}", f"try: ssh {host}")
    if "Connection refused" in words:
        return ConnectError(f"{host} refuses the connection: no SSH server on that port", "check the port")
    if "timed out" in words:
        return ConnectError(f"{host} did not answer in time", f"try: ssh {host}")
    return ConnectError(
        f"no connection to {host}: {last_line(words) or 'ssh ended without a word'}", f"try: ssh {host}"
    )


def _changed_key(words: str) -> HostKeyError | None:
    if "REVOKED HOST KEY" in words or re.search(r"host key .*revoked", words, re.IGNORECASE):
        return ChangedHostKey("the host key is marked as revoked", "ask whoever runs the host for its new key")
    if "HOST IDENTIFICATION HAS CHANGED" not in words:
        if "Host key verification failed" in words:
            return HostKeyError(f"the host key cannot be verified: {last_line(words)}")
        return None
    name, place, shown = _CHANGED.search(words), _OFFENDING.search(words), _FINGERPRINT.search(words)
    host = name[1] if name else "the host"
    where = f"{place[1]} line {place[2]}" if place else "a known_hosts file"
    return ChangedHostKey(
        f"the host key of {host} has changed: it shows {shown[1] if shown else 'another one'}, another key is in "
        f"{where}. Someone may be listening in, or the host was set up anew",
        "ask whoever runs the host"
        + (f"; if the new key is right: ssh-keygen -R '{host}' -f '{place[1]}'" if place else ""),
    )
