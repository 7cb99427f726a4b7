"""``eagle-console [HOST]`` and ``demo``: opens the screen."""

from __future__ import annotations

import contextlib
import sys

from eagle_console.commands.invocation import UsageError
from eagle_console.config import Config, state_dir
from eagle_console.link.connect import DEMO, Target, resolve
from eagle_console.link.errors import AddressError


def has_terminal() -> bool:
    """Whether there is one to paint on: Textual reads the keys from stdin and writes to stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def default_host(config: Config) -> tuple[str, bool]:
    """The host to open when none is named: the last one, else the first profile.

    :returns: its name, and whether it was a choice: of several profiles without a last one the person chooses.
    :raises UsageError: when there is no profile.
    """
    last = _last_host()
    if last in config.hosts or last == DEMO:
        return last, True
    if config.hosts:
        return next(iter(config.hosts)), len(config.hosts) == 1
    raise UsageError(
        "no host is named and there is no profile yet. Try: eagle-console demo, eagle-console user@host, or "
        "eagle-console hosts for an example of a profile"
    )


def others(config: Config, opened: str) -> list[Target]:
    """The other hosts that the screen can show: all profiles; none beside the demo, which is no host of anybody's.

    A profile whose address cannot be read is left out: ``eagle-console hosts`` names it.
    """
    found = []
    for name in config.hosts if opened != DEMO else ():
        if name != opened:
            with contextlib.suppress(AddressError):
                found.append(resolve(name, config))
    return found


def remember_host(name: str) -> None:
    """Notes the host for the next start without one. A state directory that cannot be written is no obstacle."""
    try:
        state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
        (state_dir() / "last_host").write_text(name, encoding="utf-8")
    except OSError:
        pass


def _last_host() -> str:
    try:
        return (state_dir() / "last_host").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
