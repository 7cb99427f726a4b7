"""Recorded starts of servers for the backtest: what of each was known at a time, and what it leaves for later ones.

The file is JSON, ``{"runs": [..]}``, oldest start first. Of each run: ``vllm``, ``gpus``, ``shards``, ``draft`` and,
where they are given, ``model``, ``filesystem`` and ``cache`` are its key; ``events_s`` are seconds since the first
line: ``fs`` the line of the checkpoint's size (``ck`` is that size in GiB), ``lw`` rank 0's weights, ``dyn`` the first
line of the compiler, ``kv`` the size of the KV cache, ``init`` the engine, ``serve`` the server; ``rank0_bar`` are the
lines of the progress bar: shards, seconds since the weights began, the remaining seconds that the bar gave. A start may
lack any event but the last: its span then took no time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from remote.watch import shards
from remote.watch.eta import Seen
from remote.watch.history import SPANS, PastStart, StartKey
from remote.watch.pace import Reading
from remote.watch.spans import Begun

_ENDS = ("fs", "lw", "dyn", "kv", "init", "serve")  # the events that end the spans, in their order


class TimelineError(ValueError):
    """A file that holds no recorded starts. The message says why."""


@dataclass(frozen=True)
class Bar:
    """One line of the bar: ``at`` in seconds since the first line of the log."""

    done: int
    at: float
    remaining: Optional[float]


@dataclass(frozen=True)
class Timeline:
    """One recorded start; ``ends`` are the seconds at which its spans ended."""

    name: str
    key: StartKey
    size: Optional[float]
    files: int
    ends: tuple[float, ...]
    bars: tuple[Bar, ...]

    @property
    def total(self) -> float:
        return self.ends[-1]

    def bars_until(self, at: float) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if bar.at <= at)

    def seen(self, at: float, past: Sequence[PastStart]) -> Seen:
        """What was known at a time; the work of its files is learned from the earlier starts."""
        spans = [Begun(SPANS[0], 0.0)]
        spans += [Begun(name, end) for name, end in zip(SPANS[1:], self.ends) if end <= at]
        works = (0.0, *shards.learned(self.files, (start.marks for start in past)))
        counts = [(bar.done, bar.at - self.ends[0]) for bar in self.bars_until(at)]
        done = max((count for count, _ in counts), default=0)
        reading = Reading(tuple((works[count], seconds) for count, seconds in counts), works[min(done + 1, self.files)])
        return Seen(self.key, at, tuple(spans), self.size, reading)

    def past(self) -> PastStart:
        """What later starts know of it."""
        counts = [(float(bar.done), bar.at - self.ends[0]) for bar in self.bars]
        seconds = [end - start for start, end in zip((0.0, *self.ends), self.ends)]
        return PastStart(self.key, dict(zip(SPANS, seconds)), self.size, shards.marks(counts, self.files))


def parse(text: str) -> tuple[Timeline, ...]:
    """The starts of a file.

    :raises TimelineError: when it is not such a file.
    """
    try:
        return tuple(_timeline(run) for run in json.loads(text)["runs"])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise TimelineError(f"no recorded starts: {type(error).__name__}: {error}") from None


def _timeline(run: Mapping[str, Any]) -> Timeline:
    events = run["events_s"]
    files, size = int(run["shards"]), float(events.get("ck") or 0.0)
    key = StartKey(
        model=str(run.get("model") or f"{files} files, {size:g} GiB"),
        filesystem=str(run.get("filesystem") or ""),
        draft="draft" if run.get("draft") else "",
        tensor_parallel=int(run.get("gpus") or 0),
        version=str(run.get("vllm") or ""),
        cache=str(run.get("cache") or ""),
    )
    ends: list[float] = []
    for name in _ENDS:
        before = ends[-1] if ends else 0.0
        ends.append(max(float(events[name] if name == _ENDS[-1] else events.get(name) or before), before))
    bars = tuple(
        Bar(min(int(done), files), ends[0] + float(seconds), None if remaining is None else float(remaining))
        for done, seconds, remaining in run.get("rank0_bar") or ()
    )
    if files < 1 or ends[-1] <= 0:
        raise ValueError("a start without files or without an end")
    return Timeline(str(run.get("run", "")), key, size * 2**30 or None, files, tuple(ends), bars)
