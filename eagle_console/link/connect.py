"""From the name of a host to a client of its agent."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from eagle_console.client import HostClient
from eagle_console.config import SYSTEM_SSH, Config, HostProfile
from eagle_console.link.address import parse_address
from eagle_console.link.bootstrap import EXEC_LINE, BootstrapResult, start_agent
from eagle_console.link.errors import ConnectError, LinkTimeout
from eagle_console.link.prompts import Nobody, PatientPrompter, Prompter
from eagle_console.link.session import AgentSession, Opening
from eagle_console.link.transport import LocalTransport, Transport

LOCAL = "local"
DEMO = "demo"


@dataclass(frozen=True)
class Target:
    """A host to work on. Where the configuration has no profile of that name, ``profile`` holds the address alone.

    :param near: the profile whose name is most like it then, empty where none is.
    """

    profile: HostProfile
    near: str = ""

    @property
    def name(self) -> str:
        return self.profile.name


@dataclass(frozen=True)
class Endpoint:
    """A host that can be connected to again and again.

    :param transport: makes a new connection at each call.
    """

    target: Target
    transport: Callable[[], AbstractAsyncContextManager[Transport]]


@dataclass(frozen=True)
class Connected:
    """A session, how its agent was started, and the connection that carries it."""

    session: AgentSession
    bootstrap: BootstrapResult
    transport: Transport


def resolve(host: str, config: Config) -> Target:
    """The host that a person means: a profile, else ``local`` or ``demo``, else an ssh alias or address.

    :raises AddressError: when it is none of these.
    """
    profile = config.hosts.get(host) or HostProfile(name=host, address=host)
    near = [] if host in config.hosts else difflib.get_close_matches(host, config.hosts, n=1)
    if profile.address == DEMO:
        from eagle_console.demo.environment import demo_profile
        from eagle_console.demo.home import demo_home

        profile = demo_profile(demo_home())
    elif profile.address != LOCAL:
        parse_address(profile.address)
        return Target(profile, *near)
    return Target(profile)


@asynccontextmanager
async def reach(target: Target, prompter: Prompter | None = None) -> AsyncIterator[Endpoint]:
    """Makes a host reachable: the embedded host runs as long as this context.

    :param prompter: is asked for passphrases, passwords and codes; by default there is nobody to ask.
    """
    prompter = prompter or Nobody()
    if target.profile.address == LOCAL:
        yield Endpoint(target, LocalTransport)
    elif target.profile.address == DEMO:
        from eagle_console.link.demo import run_demo

        async with run_demo() as transport:
            yield Endpoint(target, transport)
    elif target.profile.transport == SYSTEM_SSH:
        from eagle_console.link.openssh import OpenSshTransport

        yield Endpoint(target, lambda: OpenSshTransport(target.profile.address, target.name, prompter))
    else:
        from eagle_console.link.ssh import AsyncsshTransport

        passphrases: dict[str, str] = {}  # for the reconnects of this endpoint
        yield Endpoint(target, lambda: AsyncsshTransport(target.profile.address, target.name, prompter, passphrases))


@asynccontextmanager
async def open_session(
    endpoint: Endpoint, request_seconds: float | None = None, topics: Sequence[str] = ()
) -> AsyncIterator[Connected]:
    """Connects, starts the agent and exchanges the hellos.

    :param request_seconds: the time for each answer; None leaves it to the session.
    :param topics: subscribed to in the same breath, see ``session.Opening``.
    :raises LinkError: of the class that says what failed.
    """
    profile = endpoint.target.profile
    opening = Opening.of(profile.workspace, profile.readonly, topics)
    async with _hinted(endpoint.target), endpoint.transport() as transport:
        channel = await transport.open(EXEC_LINE)
        try:
            started = await start_agent(channel, profile.name, opening.encode())
            session = await AgentSession.answered(channel, profile.name, opening, request_seconds)
        except BaseException:
            await channel.close()
            raise
        try:
            yield Connected(session, started, transport)
        finally:
            await session.close()


@asynccontextmanager
async def _hinted(target: Target) -> AsyncIterator[None]:
    """Where an address leads nowhere it may be the mistyped name of a profile: the remedy then says so first."""
    try:
        yield
    except ConnectError as error:
        if target.near:
            error.remedy = f"there is no profile {target.name!r}; did you mean {target.near!r}? Else {error.remedy}"
        raise


@asynccontextmanager
async def connect(
    target: Target, timeout: float | None = None, prompter: Prompter | None = None
) -> AsyncIterator[HostClient]:
    """A client of the host's agent, for as long as the context lasts.

    :param timeout: seconds for connecting, and then for each request; None leaves both to their defaults. The time
        that questions take does not count.
    :param prompter: as for ``reach``.
    :raises LinkTimeout: when the connection is not made in that time.
    :raises LinkError: of the class that says what failed.
    """
    patient = PatientPrompter(prompter or Nobody())
    async with AsyncExitStack() as stack:
        try:
            async with patient.timeout(timeout):
                endpoint = await stack.enter_async_context(reach(target, patient))
                connected = await stack.enter_async_context(open_session(endpoint, timeout))
        except TimeoutError:
            raise LinkTimeout(f"no connection to {target.name} in {timeout:g} s") from None
        yield HostClient(connected.session)
