"""What every command gets: its arguments, the configuration, where its words go; and how it reaches a host."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from eagle_console.client import HostClient
from eagle_console.commands.terminal_prompter import TerminalPrompter
from eagle_console.config import Config, load
from eagle_console.link.connect import Target, connect, resolve
from eagle_console.link.lasting import stay_connected
from eagle_console.output import Output

T = TypeVar("T")

DEFAULT_TIMEOUT = 30.0


class UsageError(Exception):
    """The command line does not make sense; the message says what to write instead."""


class Refused(Exception):
    """A safety rule on the console's side: a confirmation is missing."""


@dataclass(frozen=True)
class Invocation:
    """One call of the command line. ``timeout`` bounds connecting and each request, not the work on the host."""

    arguments: Namespace
    out: Output

    @cached_property
    def config(self) -> Config:
        path = getattr(self.arguments, "config", None)
        return load(Path(path) if path else None)

    @property
    def timeout(self) -> float:
        return float(getattr(self.arguments, "timeout", None) or DEFAULT_TIMEOUT)

    @cached_property
    def target(self) -> Target:
        """The host that the command names, narrowed to read-only where the command line says so."""
        return self.narrowed(resolve(self.arguments.host, self.config))

    def narrowed(self, target: Target) -> Target:
        """A host as the command line allows to use it: read-only where it says so."""
        if getattr(self.arguments, "readonly", False):
            target = replace(target, profile=replace(target.profile, readonly=True))
        return target

    @asynccontextmanager
    async def host(self) -> AsyncIterator[HostClient]:
        """A connection to the command's host.

        :raises LinkError: with the remedy, when it cannot be had within the timeout.
        """
        async with connect(self.target, self.timeout, TerminalPrompter()) as client:
            yield client

    async def follow(self, work: Callable[[HostClient], Awaitable[T]]) -> T:
        """What ``work`` gives, with a client that survives lost links.

        :raises LinkError: with the remedy, when the host cannot be reached, or not any more without a person.
        """
        return await stay_connected(self.target, work, self.out.say, self.timeout, TerminalPrompter())

    def confirm(self, question: str, act: str) -> None:
        """Asks on a terminal; without one the flag ``--yes`` must have been given.

        :raises Refused: when the answer is not yes.
        """
        if getattr(self.arguments, "yes", False):
            return
        if not sys.stdin.isatty():
            raise Refused(f"{act} needs --yes when stdin is no terminal; nothing was done")
        self.out.say(f"{question} [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Refused("nothing was done")
