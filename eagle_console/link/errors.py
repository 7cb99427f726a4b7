"""What can go wrong on the way to a host. Every error has a message for people and a remedy, the thing to do about it.

LinkError
    AddressError            the address of a profile or on the command line makes no sense
    ConnectError            nothing answers: refused, no such name, no route, no answer in time
    AuthenticationError     the host answers and does not let this user in
        PromptCancelled     a passphrase, password or code was wanted and not given
    HostKeyError            the host cannot prove that it is the one it should be
        UnknownHostKey      never seen before: a person must compare the fingerprint
        ChangedHostKey      another key than the known one, or a revoked one: always refused
    BootstrapError          the agent could not be started
        NoPython            no Python 3.9 or newer on the host
        BundleError         the bundle could not be stored on the host, or not be built
    ConnectionLost          the link ended while it was in use
        NotConnected        there is no link now; the supervisor is waiting or has given up
    ForwardingRefused       the SSH server passes no connections to its ports on
    PortClosed              nothing listens on that port of the host
    NoTerminal              the SSH server makes no terminal for a shell
    AgentError              the agent broke the protocol or ended by itself
    LinkTimeout             no answer in the time that the caller allows
"""

from __future__ import annotations

from eagle_console.state import HostKeyQuestion
from eagle_console.text import clean


class LinkError(Exception):
    """Base of all errors of the link.

    :param message: one sentence: what happened, with the host's name. What a host said in it is made printable here.
    :param remedy: what to do about it, as an exact command where there is one; empty where nothing is known.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = clean(message)
        super().__init__(self.message)
        self.remedy = remedy


class AddressError(LinkError):
    """The address cannot be read."""


class ConnectError(LinkError):
    """No connection to the host's SSH server."""


class AuthenticationError(LinkError):
    """The host refuses this user. Never tried again by itself: servers ban addresses that keep failing."""


class PromptCancelled(AuthenticationError):
    """A question on the way in has no answer: a person cancelled it, the host did not wait, or there is no terminal.

    :param asked: whether a person saw the question.
    """

    def __init__(self, message: str, remedy: str = "", asked: bool = True) -> None:
        super().__init__(message, remedy)
        self.asked = asked


class HostKeyError(LinkError):
    """The host's key cannot be verified."""


class UnknownHostKey(HostKeyError):
    """The host was never seen. ``question`` is what a person must decide on.

    :param name: the profile or address to give to ``hosts trust``; with jump hosts it is not the host of the question.
    """

    def __init__(self, question: HostKeyQuestion, name: str) -> None:
        where = question.host if question.port == 22 else f"{question.host} port {question.port}"
        super().__init__(
            f"the {question.algorithm} key of {where} is not known: {question.fingerprint}",
            f"compare the fingerprint with the host's own, then: eagle-console hosts trust {name}",
        )
        self.question = question


class ChangedHostKey(HostKeyError):
    """The host shows another key than the one that is known, or one that was revoked. Always refused."""


class BootstrapError(LinkError):
    """The host let us in, and the agent did not start."""


class NoPython(BootstrapError):
    """There is no Python that can run the agent."""


class BundleError(BootstrapError):
    """The agent's bundle cannot be built here or stored there."""


class ConnectionLost(LinkError):
    """The link ended while it was in use. Jobs on the host go on."""


class NotConnected(ConnectionLost):
    """There is no link at the moment."""


class ForwardingRefused(LinkError):
    """The SSH server forbids connections to its ports."""


def forwarding_refused(host: str) -> ForwardingRefused:
    """The error with its remedies."""
    return ForwardingRefused(
        f"the SSH server of {host} passes no connections on to its ports",
        "it needs AllowTcpForwarding local in sshd_config, and a key with 'restrict' needs 'port-forwarding'; without "
        "them use the server from a shell on the host: eagle-console shell",
    )


class PortClosed(LinkError):
    """Nothing listens on that port of the host's loopback."""


class NoTerminal(LinkError):
    """The SSH server makes no terminal (pty) for a shell."""


class AgentError(LinkError):
    """The agent said something that makes no sense, or ended by itself."""


class LinkTimeout(LinkError):
    """No answer in the time allowed."""
