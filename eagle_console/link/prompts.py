"""Asking a person while a connection is made: who can be asked, and what stands still meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from eagle_console.link.errors import PromptCancelled
from eagle_console.link.questions import Prompt

ATTEMPTS = 3
"""Wrong answers to one kind of question in one connection. Servers count them: fail2ban's usual limit is five."""


class Prompter(Protocol):
    """Somebody who can be asked."""

    @property
    def available(self) -> bool:
        """Whether there is anybody to ask now."""

    async def ask(self, prompt: Prompt) -> str:
        """The person's answer, possibly empty.

        :raises PromptCancelled: when there is none.
        """

    def tell(self, host: str, words: str) -> None:
        """Shows what needs no answer here: a security key that waits for a touch."""


class Nobody:
    """There is no person: every question is its own refusal."""

    available = False

    async def ask(self, prompt: Prompt) -> str:
        raise unanswered(prompt)

    def tell(self, host: str, words: str) -> None:
        pass


class PatientPrompter:
    """A prompter whose open question stops the clocks of the timeouts that were started with it.

    A person may need minutes to find a code; the time for the host must not pass meanwhile. One question is open at a
    time.
    """

    def __init__(self, prompter: Prompter) -> None:
        self._prompter = prompter
        self._clocks: list[asyncio.Timeout] = []
        self._asking = asyncio.Lock()
        self._silenced = False

    @property
    def available(self) -> bool:
        return self._prompter.available and not self._silenced

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nobody is asked inside: a connection that is only a precaution must not trouble anybody."""
        self._silenced = True
        try:
            yield
        finally:
            self._silenced = False

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """As ``asyncio.timeout``, without the time of questions.

        :raises TimeoutError: when the time has passed.
        """
        async with asyncio.timeout(seconds) as clock:
            self._clocks.append(clock)
            try:
                yield
            finally:
                self._clocks.remove(clock)

    async def ask(self, prompt: Prompt) -> str:
        async with self._asking:
            now = asyncio.get_running_loop().time
            stopped = [(clock, end - now()) for clock in self._clocks if (end := clock.when()) is not None]
            for clock, _ in stopped:
                clock.reschedule(None)
            try:
                return await self._prompter.ask(prompt)
            finally:
                for clock, left in stopped:
                    if clock in self._clocks:
                        clock.reschedule(now() + left)

    def tell(self, host: str, words: str) -> None:
        self._prompter.tell(host, words)


def unanswered(prompt: Prompt) -> PromptCancelled:
    """The error where there is nobody to ask."""
    return PromptCancelled(
        f"{prompt.host}: there is no terminal to ask on: {prompt.label}", prompt.without_terminal, asked=False
    )


def cancelled(prompt: Prompt) -> PromptCancelled:
    """The error where a person did not want to answer."""
    return PromptCancelled(f"{prompt.host}: the question was cancelled: {prompt.label}", "R asks again")


def too_late(prompt: Prompt) -> PromptCancelled:
    """The error where the host did not wait for the answer."""
    return PromptCancelled(
        f"{prompt.host} closed the connection before the question was answered: {prompt.label}",
        "R on the screen, or the same command, asks again",
    )
