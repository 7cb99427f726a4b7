"""What the console knows about one host: frames in, immutable snapshots out. Pure; the clock is an argument.

``received`` times are the console's own monotonic clock, so that freshness does not depend on the host's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from eagle_console.adopted import as_job
from eagle_console.link.questions import Prompt
from remote.protocol import frames
from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.codec import from_wire
from remote.protocol.disk import DiskSnapshot
from remote.protocol.frames import AgentHello, Event
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import LIVE_STATES, Job, JobList

STALE_SECONDS = 3.0
"""Silence after which a panel is no longer shown as live."""

HISTORY_SAMPLES = 60
"""Samples a GPU keeps for its sparkline: one minute at 1 Hz."""

T = TypeVar("T")


@dataclass(frozen=True)
class Timed(Generic[T]):
    """A value and when it arrived."""

    value: T
    received: float


class LinkState(Enum):
    """Where the link to the host is."""

    IDLE = "idle"
    CONNECTING = "connecting"
    LIVE = "live"
    WAITING = "waiting"  # lost; the next try is at ``retry_at``
    UNKNOWN_HOST_KEY = "unknown host key"  # a person must decide
    ASKING = "asking"  # connecting; a passphrase, password or code is wanted
    FAILED = "failed"  # no further try by itself: authentication, changed host key, no Python
    CLOSED = "closed"


@dataclass(frozen=True)
class HostKeyQuestion:
    """An unknown host key to decide on: for which host, its algorithm, its SHA256 fingerprint and the key line."""

    host: str
    port: int
    algorithm: str
    fingerprint: str
    known_hosts_line: str


@dataclass(frozen=True)
class LinkStatus:
    """The state of the link, why it is so, when the next try is due (monotonic), and what a person must decide."""

    state: LinkState = LinkState.IDLE
    detail: str = ""
    remedy: str = ""
    attempt: int = 0
    retry_at: float | None = None
    question: HostKeyQuestion | None = None
    prompt: Prompt | None = None


class Freshness(Enum):
    LIVE = "LIVE"
    STALE = "STALE"
    DOWN = "DOWN"  # the link is down; the value is the last one known
    NONE = "NONE"  # nothing was ever received


@dataclass(frozen=True)
class HostState:
    """Everything known about one host. ``problems`` are topics that the agent could not serve, by topic."""

    name: str
    link: LinkStatus = LinkStatus()
    hello: AgentHello | None = None
    gpus: Timed[GpuSnapshot] | None = None
    host: Timed[HostSample] | None = None
    disk: Timed[DiskSnapshot] | None = None
    jobs: Timed[JobList] | None = None
    adopted: Timed[AdoptedList] | None = None
    gpu_history: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def readonly(self) -> bool:
        return self.hello is not None and self.hello.readonly

    @property
    def simulated(self) -> bool:
        """Whether anything on this host's screen is simulated."""
        gpus = self.gpus is not None and self.gpus.value.simulated
        return gpus or (self.hello is not None and self.hello.simulated)

    def job(self, job_id: str) -> Job | None:
        """The job of that id, or the adopted program in a job's shape."""
        jobs = self.jobs.value.jobs if self.jobs else ()
        return next((job for job in (*jobs, *self.adopted_jobs()) if job.id == job_id), None)

    def adopted_record(self, job_id: str) -> Adopted | None:
        """The adopted program of that id."""
        records = self.adopted.value.records if self.adopted else ()
        return next((record for record in records if record.id == job_id), None)

    def adopted_jobs(self) -> tuple[Job, ...]:
        """What runs without being ours, in the shape of jobs; the newest first."""
        host = self.hello.host if self.hello is not None else ""
        return tuple(as_job(record, host) for record in (self.adopted.value.records if self.adopted else ()))

    def live_jobs(self) -> tuple[Job, ...]:
        jobs = self.jobs.value.jobs if self.jobs else ()
        return tuple(job for job in jobs if job.state in LIVE_STATES)

    def newest(self, stage: str) -> Job | None:
        """The job of a stage to show: the newest live one, else what runs without being ours, else the newest."""
        return newest_of_stage(self.jobs.value.jobs if self.jobs else (), stage, self.adopted_jobs())


def newest_of_stage(jobs: tuple[Job, ...], stage: str, adopted: tuple[Job, ...] = ()) -> Job | None:
    """The newest live job of a stage, else the newest live adopted program, else the newest job that has ended.

    Both are newest first; an adopted program that has ended counts when there is nothing else.
    """
    ours, others = ([job for job in some if job.stage == stage] for some in (jobs, adopted))
    live = (job for job in (*ours, *others) if job.state in LIVE_STATES)
    return next(live, None) or next(iter((*ours, *others)), None)


def with_link(state: HostState, link: LinkStatus) -> HostState:
    return replace(state, link=link)


def with_hello(state: HostState, hello: AgentHello) -> HostState:
    return replace(state, hello=hello)


def with_event(state: HostState, event: Event, now: float) -> HostState:
    """The state after one event of a subscription.

    :raises ProtocolError: when the event's data does not fit its topic.
    """
    if event.error is not None:
        return replace(state, problems={**state.problems, event.topic: event.error.message})
    if event.topic in state.problems:
        state = replace(state, problems={name: text for name, text in state.problems.items() if name != event.topic})
    data = event.data or {}
    if event.topic == frames.TOPIC_GPUS:
        snapshot = from_wire(GpuSnapshot, data)
        return replace(state, gpus=Timed(snapshot, now), gpu_history=_extend_history(state.gpu_history, snapshot))
    if event.topic == frames.TOPIC_HOST:
        return replace(state, host=Timed(from_wire(HostSample, data), now))
    if event.topic == frames.TOPIC_DISK:
        return replace(state, disk=Timed(from_wire(DiskSnapshot, data), now))
    if event.topic == frames.TOPIC_ADOPTED:
        return replace(state, adopted=Timed(from_wire(AdoptedList, data), now))
    if event.topic == frames.TOPIC_JOBS:
        return replace(state, jobs=Timed(from_wire(JobList, data), now))
    return state


def freshness(
    state: HostState, value: Timed[T] | None, now: float, stale_after: float = STALE_SECONDS
) -> tuple[Freshness, float | None]:
    """How fresh a value is, and its age in seconds (None when there is no value).

    :param stale_after: seconds; what is asked for now and then lives longer than what is subscribed to.
    """
    if value is None:
        return (Freshness.NONE, None)
    age = max(0.0, now - value.received)
    if state.link.state is not LinkState.LIVE:
        return (Freshness.DOWN, age)
    return (Freshness.LIVE if age < stale_after else Freshness.STALE, age)


def _extend_history(
    history: dict[int, tuple[float | None, ...]], snapshot: GpuSnapshot
) -> dict[int, tuple[float | None, ...]]:
    """Each GPU's utilisation in percent, the newest last; an unknown sample keeps its place as None."""
    extended = {}
    for gpu in snapshot.gpus:
        samples = (*history.get(gpu.index, ()), None if gpu.utilization is None else float(gpu.utilization))
        extended[gpu.index] = samples[-HISTORY_SAMPLES:]
    return extended
