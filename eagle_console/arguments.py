"""Arguments that many commands share, and what their values may be."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from eagle_console import completing
from eagle_console.commands.invocation import Invocation

Command = Callable[[Invocation], Awaitable[int]]
"""Gives an exit code; that of ``shell`` is the shell's."""

Describe = Callable[[argparse.ArgumentParser], None]
"""Adds the arguments of one command to its parser."""


def add_host(parser: argparse.ArgumentParser, command: Command) -> None:
    host = parser.add_argument("host", metavar="HOST", help="profile, ssh alias, user@host:port, local, or demo")
    completing.complete_with(host, completing.hosts)
    parser.set_defaults(run=command)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError("must be between 0 and 86400 seconds")
    return value


def port(text: str) -> int:
    value = count(text)
    if value > 65535:
        raise argparse.ArgumentTypeError(f"there is no port {value}")
    return value


def count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value
