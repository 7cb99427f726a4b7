"""Jobs: the records of a job directory, and what the agent answers about them (topics ``jobs``, ``events``, ``log``).

A job directory holds ``spec.json`` (written once, by the launcher), ``started.json``, ``state.json``, ``events.jsonl``,
``samples.jsonl``, ``exit.json`` (written by the runner alone), ``stop.json`` (the wish to stop it), ``stage.log`` with
its time index ``stage.idx``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from remote.protocol.progress import Evidence, Failure, Progress

SCHEMA = 1

KIND_SERVICE = "service"  # runs until it is stopped; its end without a stop is a failure
KIND_TASK = "task"  # ends by itself

STARTING = "starting"  # launched; the runner has not yet reported
RUNNING = "running"
READY = "ready"  # a service whose health check answers
STOPPING = "stopping"
DONE = "done"
STOPPED = "stopped"
FAILED = "failed"
GONE = "gone"  # no runner and no exit record: killed together, or the host went down
UNSUPERVISED = "unsupervised"  # the runner died, the stage's own processes live on
ELSEWHERE = "elsewhere"  # belongs to another machine that shares this file system

LIVE_STATES = (STARTING, RUNNING, READY, STOPPING, UNSUPERVISED)
ENDED_STATES = (DONE, STOPPED, FAILED, GONE)


@dataclass(frozen=True)
class ProcessId:
    """A process for good: pids are reused, so the boot and the start time (field 22 of /proc/PID/stat) belong to it."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class JobSpec:
    """What was asked for. ``argv`` runs without a shell; ``env`` holds no secrets.

    ``forced`` are the preflight checks in spite of which it was launched.
    """

    id: str
    stage: str
    kind: str
    argv: tuple[str, ...]
    cwd: str
    parameters: dict[str, Any]
    created: float
    machine_id: str
    host: str
    user: str
    env: dict[str, str] = field(default_factory=dict)
    health_url: Optional[str] = None
    grace_seconds: float = 20.0
    schema: int = SCHEMA
    key: Optional[str] = None
    requested_by: str = ""
    command_line: str = ""
    watcher: str = ""
    simulated: bool = False
    bundle_dir: str = ""
    forced: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobStarted:
    """Written by the runner when the stage's main process exists."""

    runner: ProcessId
    main: ProcessId
    session: int
    wall: float
    schema: int = SCHEMA


@dataclass(frozen=True)
class JobState:
    """The runner's latest word, replaced atomically: at every change and once in a few seconds."""

    state: str
    wall: float
    progress: Progress = Progress()
    processes: tuple[ProcessId, ...] = ()
    seq: int = 0
    failure: Optional[Failure] = None
    note: str = ""
    schema: int = SCHEMA
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class JobExit:
    """Written by the runner as its last act.

    ``code`` is the main process's exit code, None when ``signal`` ended it. ``killed`` counts the descendants that had
    to be ended after it; ``survivors`` are those that could not be. ``seconds`` is how long it ran by a clock that
    nobody sets.
    """

    state: str
    wall: float
    code: Optional[int] = None
    signal: Optional[int] = None
    failure: Optional[Failure] = None
    killed: int = 0
    survivors: tuple[ProcessId, ...] = ()
    schema: int = SCHEMA
    seconds: Optional[float] = None


@dataclass(frozen=True)
class StopRequest:
    """The wish to end a job, with who wished it."""

    wall: float
    requested_by: str = ""
    force: bool = False
    schema: int = SCHEMA


@dataclass(frozen=True)
class JobEvent:
    """One line of ``events.jsonl``: ``seq`` is its place, ``kind`` what happened, ``text`` a sentence for people."""

    seq: int
    wall: float
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


EVENT_STARTED = "started"
EVENT_PHASE = "phase"
EVENT_READY = "ready"
EVENT_STOP = "stop"
EVENT_SIGNAL = "signal"
EVENT_WARNING = "warning"
EVENT_MESSAGE = "message"
EVENT_FAILURE = "failure"
EVENT_ENDED = "ended"


@dataclass(frozen=True)
class Job:
    """A job as the agent sees it now: the spec's main words, and the state judged from the records and /proc.

    ``seconds`` is the running time so far, or in all; ``silent`` is how long the runner has said nothing. ``evidence``
    is what the stage has proven about its work.
    """

    id: str
    stage: str
    kind: str
    state: str
    created: float
    host: str
    parameters: dict[str, Any]
    command_line: str = ""
    progress: Progress = Progress()
    started: Optional[float] = None
    ended: Optional[float] = None
    seconds: Optional[float] = None
    code: Optional[int] = None
    signal: Optional[int] = None
    failure: Optional[Failure] = None
    pids: tuple[int, ...] = ()
    health_url: Optional[str] = None
    note: str = ""
    silent: Optional[float] = None
    log: str = ""
    simulated: bool = False
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class JobList:
    """All jobs of the workspace, newest first. ``problem`` is set when the job folder cannot be read.

    ``omitted`` counts ended jobs, the oldest ones, that did not fit into a frame. Ended jobs but the newest few come
    without their phases, figures and command line; the operation ``job`` gives those.
    """

    jobs: tuple[Job, ...] = ()
    problem: str = ""
    omitted: int = 0


@dataclass(frozen=True)
class LogChunk:
    """A piece of a job's log, from byte ``offset`` up to ``next_offset``; ``size`` is the file's size when it was read.

    ``lines`` are decoded with replacement, split at newlines and carriage returns, without their ends. ``first_line``
    is a running line number where it is known.
    """

    job: str
    offset: int
    next_offset: int
    size: int
    lines: tuple[str, ...]
    wall: Optional[float] = None
    note: str = ""
