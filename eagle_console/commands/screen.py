"""``eagle-console [HOST]`` and ``demo``: opens the screen."""

from __future__ import annotations

import sys

from eagle_console.commands.invocation import UsageError
from eagle_console.config import Config, state_dir


def has_terminal() -> bool:
    """Whether there is one to paint on: Textual reads the keys from stdin and writes to stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def default_host(config: Config) -> str:
    """The host to open when none is named: the last one, else the only profile.

    :raises UsageError: when neither decides it.
    """
    last = _last_host()
    if last in config.hosts or last == "demo":
        return last
    if len(config.hosts) == 1:
        return next(iter(config.hosts))
    if config.hosts:
        raise UsageError(f"which host? Profiles: {', '.join(config.hosts)}")
    raise UsageError(
        "no host is named and there is no profile yet. Try: eagle-console demo, eagle-console user@host, or "
        "eagle-console hosts for an example of a profile"
    )


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
