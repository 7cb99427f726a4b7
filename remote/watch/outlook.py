"""A start's outlook while it runs: its estimate, its bar, what holds it up, and in the end its record for the history.

One object follows one start. It is given what others read: progress from the log, counters, earlier starts. No I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from remote.protocol.progress import Eta, Progress
from remote.watch import bottleneck, counters, eta, shards, spans
from remote.watch import vllm_wording as wording
from remote.watch.bottleneck import Situation
from remote.watch.counters import Checkpoint, Counters
from remote.watch.eta import Seen
from remote.watch.history import MAX_MARKS, PastStart, StartKey
from remote.watch.pace import Reading

RATE_SECONDS = 60.0
"""The time that the read rate for a bottleneck is over."""

_LEAST_RATE_SECONDS = 3.0
_MARKS = 240
_COLD = 0.05  # of the checkpoint, from storage: less is what the page cache lacked
_WEIGHT_PHASES = (wording.WEIGHTS, wording.DRAFT)


class Outlook:
    """Times are seconds since the start of the job.

    :param key: all that is known before the first line; the release comes from the log.
    :param checkpoint: its weights, without files where they are not known.
    :param past: earlier starts, oldest first.
    """

    def __init__(self, key: StartKey, checkpoint: Checkpoint, past: Sequence[PastStart]) -> None:
        self._key = key
        self._checkpoint = checkpoint
        self._past = tuple(past)
        self._latest: Optional[Counters] = None
        self._first_of_weights: Optional[Counters] = None
        self._rates: list[tuple[float, int]] = []
        self._marks: list[tuple[float, float]] = []
        self._counts: list[tuple[float, float]] = []
        self._activity = -1
        self._moved_at = 0.0
        self._silence = max((start.silence for start in self._past), default=0.0)
        self._own_silence = 0.0
        self._share = 0.0
        self._memory: Optional[int] = None  # before the load took it

    @property
    def key(self) -> StartKey:
        """What this start's durations depend on."""
        return self._key

    def look(self, now: Counters, activity: int) -> None:
        """Takes a reading of the counters.

        :param activity: any number that changes with every line of the log, such as its bytes.
        """
        if activity != self._activity or counters.moved(self._latest, now):
            self._own_silence = max(self._own_silence, now.at - self._moved_at)
            self._moved_at, self._activity = now.at, activity
        self._latest = now
        if now.read_bytes is not None:
            self._rates = [
                (at, read) for at, read in self._rates if now.at - at <= RATE_SECONDS and read <= now.read_bytes
            ]
            self._rates.append((now.at, now.read_bytes))

    def improve(self, told: Progress, version: str, at: float) -> Progress:
        """The progress with its estimate, its bottleneck and its ranks."""
        if version:
            self._key = dataclasses.replace(self._key, version=version)
        begun = spans.begun(told.phases)
        if told.phase not in _WEIGHT_PHASES and not self._marks and self._latest is not None:
            self._memory = self._latest.memory_available
        reading = self._read_weights(told, begun[-1].start, at) if begun and begun[-1].name == "weights" else Reading()
        found = eta.estimate(Seen(self._key, at, begun, self._size(told), reading), self._past)
        self._share = eta.advance(self._share, at, found)
        ranks = self._latest.ranks if self._latest is not None and told.phase in _WEIGHT_PHASES else ()
        rate = self._rate_of_weights() if told.phase in _WEIGHT_PHASES else None
        return dataclasses.replace(
            told,
            eta=_rounded(found, self._share),
            bottleneck=self._bottleneck(told, at),
            ranks=ranks,
            read_rate=None if rate is None else float(f"{rate:.3g}"),
        )

    def record(self, told: Progress, wall: float) -> Optional[PastStart]:
        """The start for the history, once it is ready; None where its begin or its weights were not seen."""
        begun = spans.begun(told.phases)
        if not told.ready or not told.phases or told.phases[-1].name != wording.READY:
            return None
        if not begun or begun[0].start > 0 or all(span.name != "weights" for span in begun):
            return None
        files = int(self._counts[-1][0]) if self._counts else 0
        marks = shards.marks(self._counts, files) if 0 < files <= MAX_MARKS else ()
        return PastStart(
            key=self._key,
            seconds=spans.durations(begun, told.phases[-1].start),
            size=self._size(told),
            marks=marks,
            warm=self._is_warm(),
            silence=self._own_silence,
            wall=wall,
        )

    def _size(self, told: Progress) -> Optional[float]:
        if self._checkpoint.size:
            return float(self._checkpoint.size)
        gib = (told.figures or {}).get("checkpoint_gib")
        return gib * 2**30 if gib else None

    def _read_weights(self, told: Progress, start: float, at: float) -> Reading:
        """How far the weights are: whole files by the slowest rank or the bar, and within a file by bytes."""
        if self._first_of_weights is None:
            self._first_of_weights = self._latest
        done = told.done if told.unit == "shards" and told.phase == wording.WEIGHTS else None
        if done is not None and (not self._counts or done > self._counts[-1][0]):
            self._counts.append((done, at - start))
        share, upcoming = self._by_files(told, done)
        by_bytes = self._by_bytes(told)
        if by_bytes is not None and by_bytes >= _COLD:
            within = by_bytes if upcoming is None else min(by_bytes, upcoming)
            share, upcoming = max(share or 0.0, within), None
        if share is not None and (not self._marks or share > self._marks[-1][0]):
            self._marks.append((share, at - start))
            if len(self._marks) > _MARKS:
                self._marks = self._marks[1::2]
        return Reading(tuple(self._marks), upcoming)

    def _by_files(self, told: Progress, done: Optional[float]) -> tuple[Optional[float], Optional[float]]:
        """The share after the finished files, and after the next one."""
        works = shards.by_size(self._checkpoint.sizes)
        ranks = self._latest.ranks if self._latest is not None else ()
        if works and (not told.total or told.unit != "shards" or int(told.total) == len(works)):
            share = counters.share_read(self._checkpoint, ranks, done)
            if share is None:
                return None, None
            return share, next((after for after in works if after > share + 1e-9), 1.0)
        if done is None or not told.total:
            return (told.done / told.total if told.done and told.total else None), None
        learned = (0.0, *shards.learned(int(told.total), (start.marks for start in self._past)))
        place = min(int(done), int(told.total))
        return learned[place], learned[min(place + 1, int(told.total))]

    def _by_bytes(self, told: Progress) -> Optional[float]:
        """The share that came from storage since the weights began; None where it cannot be known."""
        size, first, now = self._size(told), self._first_of_weights, self._latest
        if not size or first is None or now is None or first.read_bytes is None or now.read_bytes is None:
            return None
        return min(max(now.read_bytes - first.read_bytes, 0) / size, 0.99)

    def _is_warm(self) -> Optional[bool]:
        first, now = self._first_of_weights, self._latest
        if not self._checkpoint.size or first is None or now is None:
            return None
        if first.read_bytes is None or now.read_bytes is None:
            return None
        return now.read_bytes - first.read_bytes < _COLD * self._checkpoint.size

    def _rate(self) -> Optional[float]:
        if len(self._rates) < 2 or self._rates[-1][0] - self._rates[0][0] < RATE_SECONDS / 4:
            return None
        (since, before), (now, read) = self._rates[0], self._rates[-1]
        return (read - before) / (now - since)

    def _rate_of_weights(self) -> Optional[float]:
        """Bytes a second over the last minute, without what was read before the weights."""
        first = self._first_of_weights
        since = [] if first is None else [(at, read) for at, read in self._rates if at >= first.at]
        if len(since) < 2 or since[-1][0] - since[0][0] < _LEAST_RATE_SECONDS:
            return None
        return (since[-1][1] - since[0][1]) / (since[-1][0] - since[0][0])

    def _bottleneck(self, told: Progress, at: float) -> str:
        begun = spans.begun(told.phases)
        lasted = [start.seconds[begun[-1].name] for start in self._past if begun and begun[-1].name in start.seconds]
        now, first = self._latest, self._first_of_weights
        read = None
        if now is not None and first is not None and now.read_bytes is not None and first.read_bytes is not None:
            read = float(now.read_bytes - first.read_bytes)
        return bottleneck.sentence(
            Situation(
                phase=told.phase,
                in_phase=at - begun[-1].start if begun else at,
                version=self._key.version,
                filesystem=self._key.filesystem,
                longest=max(lasted, default=None),
                rate=self._rate(),
                usual=bottleneck.usual_rate(self._past, self._key.filesystem),
                size=self._size(told),
                read=read,
                memory=None if self._memory is None else float(self._memory),
                ranks=now.ranks if now is not None else (),
                still=at - self._moved_at if now is not None else 0.0,
                silence=max(self._silence, self._own_silence),
            )
        )


def _rounded(found: Eta, share: float) -> Eta:
    """To a tenth of a second, so that what is shown and written does not change without need."""
    return dataclasses.replace(
        found,
        seconds=round(found.seconds, 1),
        low=round(found.low, 1),
        high=round(found.high, 1),
        share=round(share, 4),
    )
