"""The frames: what the console and the agent say to each other, one JSON object a line.

The console speaks first (``Hello``), the agent answers (``AgentHello``). Then requests are answered one for one,
subscriptions produce events until they are cancelled, and pings keep the lease: without one for ``LEASE_SECONDS`` the
agent ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, Union

from remote.protocol.codec import Json, from_wire, to_wire
from remote.protocol.errors import ProtocolError

PROTOCOL_VERSION = 1
LEASE_SECONDS = 30.0
PING_SECONDS = 5.0

TOPIC_GPUS = "gpus"  # GpuSnapshot; latest wins
TOPIC_HOST = "host"  # HostSample; latest wins
TOPIC_DISK = "disk"  # DiskSnapshot; latest wins
TOPIC_JOBS = "jobs"  # JobList, all jobs of the workspace; latest wins
TOPIC_ADOPTED = "adopted"  # AdoptedList: what runs without being a job of ours; latest wins
TOPIC_EVENTS = "events"  # JobEvent of one job, args {"job", "after"}; replayed, never dropped
TOPIC_LOG = "log"  # LogChunk of one job, args {"job", "offset"} or {"job", "tail"}; never dropped


@dataclass(frozen=True)
class Hello:
    """The console's first frame: which protocol it speaks and what it wants to work on."""

    protocol: tuple[int, ...]
    client: str
    workspace: Optional[str] = None
    readonly: bool = False


@dataclass(frozen=True)
class AgentHello:
    """The agent's first frame: who and where it is, and what it can do."""

    protocol: int
    agent: str
    host: str
    user: str
    machine_id: str
    boot_id: str
    python: str
    pid: int
    wall: float
    readonly: bool
    readonly_reason: str = ""
    workspace: Optional[str] = None
    roots: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    psutil: bool = True
    simulated: bool = False
    bundle_dir: str = ""


@dataclass(frozen=True)
class Request:
    """One operation. ``key`` makes a mutation safe to send again after a lost answer."""

    id: int
    op: str
    args: dict[str, Any] = field(default_factory=dict)
    key: Optional[str] = None


@dataclass(frozen=True)
class Fault:
    """Why a request or a subscription failed: see ``remote.protocol.errors`` for the codes."""

    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Response:
    """The answer to the request of the same id: ``ok`` or ``error``."""

    id: int
    ok: Optional[dict[str, Any]] = None
    error: Optional[Fault] = None


@dataclass(frozen=True)
class Subscribe:
    """Asks for the events of a topic under a number that the console chose."""

    sub: int
    topic: str
    interval: float = 1.0
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unsubscribe:
    sub: int


@dataclass(frozen=True)
class Event:
    """One value of a subscription, or its end when ``error`` is set."""

    sub: int
    topic: str
    mono: float
    wall: float
    data: Optional[dict[str, Any]] = None
    error: Optional[Fault] = None
    dropped: int = 0


@dataclass(frozen=True)
class Ping:
    n: int


@dataclass(frozen=True)
class Pong:
    n: int
    mono: float


@dataclass(frozen=True)
class Bye:
    """The agent's last frame, with the reason why it ends."""

    reason: str


Frame = Union[Hello, AgentHello, Request, Response, Subscribe, Unsubscribe, Event, Ping, Pong, Bye]

_TAGS: dict[str, Any] = {
    "hello": Hello,
    "agent": AgentHello,
    "req": Request,
    "res": Response,
    "sub": Subscribe,
    "unsub": Unsubscribe,
    "ev": Event,
    "ping": Ping,
    "pong": Pong,
    "bye": Bye,
}
_TAG_OF = {cls: tag for tag, cls in _TAGS.items()}


def frame_to_wire(frame: Frame) -> Json:
    """The JSON object of a frame; the key ``t`` says which frame it is."""
    return {"t": _TAG_OF[type(frame)], **to_wire(frame)}


def frame_from_wire(data: Json) -> Optional[Frame]:
    """The frame that ``data`` describes, or None for a kind that this version does not know (a newer peer).

    :raises ProtocolError: when a known frame has missing or wrong fields.
    """
    tag = data.get("t")
    if not isinstance(tag, str):
        raise ProtocolError("a frame without a type")
    cls = _TAGS.get(tag)
    if cls is None:
        return None
    frame: Frame = from_wire(cls, data)
    return frame
