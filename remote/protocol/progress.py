"""How far a job is: phases, counted progress, and why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Phase:
    """A part of a job with its start and end in seconds since the job's own start; ``end`` is None while it runs."""

    name: str
    start: float
    end: Optional[float] = None
    detail: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a start or a job failed.

    :param klass: a stable class name such as ``gpu_memory_busy`` (the JSON key is ``class``).
    :param cause: one plain sentence.
    :param remedy: what to do, or empty where nothing is known.
    :param line: the log line that says so, or empty where the log says nothing.
    """

    klass: str
    cause: str
    remedy: str = ""
    line: str = ""


@dataclass(frozen=True)
class Eta:
    """When a start will be ready, in seconds from when it was estimated: probably after ``seconds``, and in about 85 of
    100 starts between ``low`` and ``high``.

    :param source: where it comes from, in words, such as ``from 3 earlier starts``.
    :param share: of the whole start, 0 to 1, for a bar: it only grows and stays below 1 until the server is ready.
    """

    seconds: float
    low: float
    high: float
    source: str = ""
    share: float = 0.0


@dataclass(frozen=True)
class RankShard:
    """The file of the checkpoint that a worker process is in: the ``place``-th (from 1) of ``total``."""

    pid: int
    name: str
    place: int
    total: int


@dataclass(frozen=True)
class Progress:
    """Counted progress of the running phase and the phases so far.

    :param phase: name of the running phase, or of the last one.
    :param done, total, unit: what is counted in this phase (shards, bytes, tensors, graphs); None where nothing is.
    :param percent: of the counted phase, 0 to 100; None where nothing is counted.
    :param ready: the server's ``/health`` answered 200 (services) or the work is complete (tasks).
    :param figures: numbers that the log or the stage gave, by name with unit, such as ``weights_gib``.
    :param rate: what is counted, in units a second; None where the stage does not say.
    :param eta: when the start will be ready; None where nothing is known and once it is ready.
    :param bottleneck: what holds the start up, with its remedy, in a sentence or two; empty where nothing does.
    :param read_rate: bytes a second that a load's processes read from storage over the last minute; None where that
        cannot be known.
    :param ranks: where each worker process is in the checkpoint; empty where that cannot be seen.
    """

    phase: str = ""
    phases: tuple[Phase, ...] = ()
    done: Optional[float] = None
    total: Optional[float] = None
    unit: str = ""
    percent: Optional[float] = None
    ready: bool = False
    detail: str = ""
    figures: Optional[dict[str, float]] = None
    rate: Optional[float] = None
    eta: Optional[Eta] = None
    bottleneck: str = ""
    ranks: tuple[RankShard, ...] = ()
    read_rate: Optional[float] = None


@dataclass(frozen=True)
class Evidence:
    """One fact that a stage has checked on its work: a number, a text or a yes, and whether it is as it must be."""

    name: str
    value: Any = None
    unit: str = ""
    ok: bool = True
