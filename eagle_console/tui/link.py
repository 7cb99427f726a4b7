"""What the screen needs of a link to a host: ``link.supervisor.Supervisor`` is one, tests bring another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eagle_console.client import HostClient
from eagle_console.link.errors import LinkError
from eagle_console.link.questions import Prompt
from eagle_console.link.transport import Transport
from eagle_console.state import HostKeyQuestion, HostState
from eagle_console.text import clean
from remote.protocol.errors import ProtocolError, RequestError

Publish = Callable[[HostState], None]

HOST_ERRORS = (LinkError, RequestError, ProtocolError)
"""What an operation of ``HostClient`` raises; each is told to the person, none ends the screen."""


class HostLink(Protocol):
    """A link that keeps itself alive and publishes what it learns."""

    @property
    def client(self) -> HostClient:
        """The operations of the connected host.

        :raises LinkError: while there is no connection.
        """

    @property
    def transport(self) -> Transport:
        """The connection of the moment, for a shell and for ports.

        :raises LinkError: while there is no connection.
        """

    async def run(self) -> None:
        """Connects, reconnects and publishes every new state, until it is cancelled."""

    def reconnect_now(self) -> None:
        """Ends the wait for the next try, and tries again after a failure."""

    def trust_host_key(self, question: HostKeyQuestion) -> None:
        """Remembers the host key of the question as good, and connects.

        :raises LinkError: when it cannot be remembered.
        """

    def answer_prompt(self, prompt: Prompt, answer: str | None) -> None:
        """Answers the open question of ``LinkState.ASKING``; None cancels it."""


Connect = Callable[[Publish], HostLink]
"""Makes the link that publishes to the given function."""


def explain(error: Exception) -> str:
    """One of ``HOST_ERRORS`` in clean words, with its remedy."""
    message = clean(getattr(error, "message", "") or error)
    remedy = clean(getattr(error, "remedy", ""))
    return f"{message}. {remedy}" if remedy else message
