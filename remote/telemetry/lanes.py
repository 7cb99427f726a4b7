"""Calls that may hang, made so that one that does holds up nothing else.

A *probe* is one call and what it answered last. A *lane* is a daemon thread that makes its probes' calls one after
another, a round at a time. A *crew* is all the probes of one subject (a GPU): normally one lane. When a call runs
longer than ``HANG_AFTER`` the thread that it hangs in keeps that probe alone and a fresh lane goes on with the
others; once the call answers promptly again, the probe rejoins them. A call is never made twice at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

HANG_AFTER = 1.0
"""Seconds after which a call counts as hanging: a thousand times what a slow NVML call takes."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended: at ``mono``, after ``seconds``, with a value or an error."""

    mono: float
    seconds: float
    value: Any = None
    error: Optional[Exception] = None


class Probe:
    """One call. Threads other than the one that makes it may read ``outcome``, ``good`` and ``in_flight``.

    :param once: the answer does not change: the call is made until it succeeds and not again.
    :param needs: another probe of the same crew, without whose value the call cannot be made.
    """

    def __init__(self, name: str, call: Callable[[], Any], once: bool = False, needs: Optional[Probe] = None) -> None:
        self.name = name
        self.outcome: Optional[Outcome] = None
        self.good: Optional[Outcome] = None
        self._call = call
        self._once = once
        self._needs = needs
        self._since: Optional[float] = None

    @property
    def value(self) -> Any:
        """What the call answered last, None when it failed or was never made."""
        return self.outcome.value if self.outcome else None

    def in_flight(self, now: float) -> float:
        """For how many seconds the call has been running; 0 while it is not."""
        since = self._since
        return 0.0 if since is None else max(0.0, now - since)

    def forget(self) -> None:
        """Makes a ``once`` probe ask again."""
        self.good = None

    def run(self) -> None:
        """Makes the call, unless it is answered for good or cannot be made."""
        if self._once and self.good:
            return
        if self._needs and self._needs.value is None:
            self.outcome = None
            return
        begin = self._since = time.monotonic()
        value: Any = None
        error: Optional[Exception] = None
        try:
            value = self._call()
        except Exception as caught:  # whatever a driver's binding raises is this probe's outcome, not the thread's end
            error = caught.with_traceback(None)
        end = time.monotonic()
        self.outcome = Outcome(end, end - begin, value, error)
        if error is None:
            self.good = self.outcome
        self._since = None


class ThreadBudget:
    """At most ``limit`` living threads, however many calls hang."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads: list[threading.Thread] = []

    def start(self, target: Callable[[], None], name: str) -> bool:
        """Starts a daemon thread; False when there are too many already."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= self._limit:
            return False
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return True


class Lane:
    """A thread and the probes that it reads. All methods are for the one thread that steers it."""

    def __init__(self, name: str, probes: Sequence[Probe], budget: ThreadBudget) -> None:
        self.probes = list(probes)
        self.alone = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._current: Optional[Probe] = None
        self._busy = False
        self.started = budget.start(self._work, name)

    @property
    def idle(self) -> bool:
        """Whether the last round is over."""
        return not self._busy

    def start_round(self) -> None:
        """Begins the next round, unless one is under way."""
        if self.started and not self._busy:
            self._busy = True
            self._wake.set()

    def overdue(self, now: float) -> Optional[Probe]:
        """The probe whose call hangs, if one does."""
        probe = self._current
        return probe if probe and probe.in_flight(now) > HANG_AFTER else None

    def leave_alone(self, hanging: Probe) -> list[Probe]:
        """Leaves this lane with the hanging probe only; answers with the others, which are then in no lane."""
        with self._lock:
            if self._current is not hanging:
                return []
            others = [probe for probe in self.probes if probe is not hanging]
            self.probes = [hanging]
            self.alone = True
            return others

    def close(self) -> None:
        """Ends the thread after the call that it is in."""
        self._closed = True
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            for probe in tuple(self.probes):
                with self._lock:
                    if self._closed:
                        return
                    if probe not in self.probes:
                        continue
                    self._current = probe
                probe.run()
                with self._lock:
                    self._current = None
            if self._closed:
                return
            self._busy = False


class Crew:
    """All probes of one subject and the lanes that read them. Steered by one thread."""

    def __init__(self, name: str, probes: Sequence[Probe], budget: ThreadBudget) -> None:
        self.probes = tuple(probes)
        self._name = name
        self._budget = budget
        self._lanes = [Lane(name, probes, budget)]

    def start_round(self) -> None:
        """Asks for a new reading of every probe whose last call is over."""
        self._rejoin()
        for lane in self._lanes:
            lane.start_round()

    def relieve(self, now: float) -> None:
        """Moves the probes that wait behind a hanging call into a lane of their own and reads them."""
        for lane in tuple(self._lanes):
            hanging = lane.overdue(now)
            if hanging is None or len(lane.probes) == 1:
                continue
            others = lane.leave_alone(hanging)
            if not others:
                continue
            relief = Lane(self._name, others, self._budget)
            if relief.started:
                self._lanes.append(relief)
                relief.start_round()
            else:
                lane.probes = [hanging, *others]
                lane.alone = False

    def settled(self, now: float) -> bool:
        """Whether every probe has been tried: its call answered, hangs, or cannot be made."""
        return all(lane.idle or lane.overdue(now) for lane in self._lanes) and any(
            probe.outcome or probe.in_flight(now) for probe in self.probes
        )

    def close(self) -> None:
        """Ends the threads that are not hanging; a hanging one ends when its call returns."""
        for lane in self._lanes:
            lane.close()

    def _rejoin(self) -> None:
        main = next((lane for lane in self._lanes if not lane.alone), None)
        for lane in tuple(self._lanes):
            if not lane.alone or not lane.idle:
                continue
            outcome = lane.probes[0].outcome
            if outcome and outcome.seconds > HANG_AFTER:
                continue
            if main and main.idle:
                main.probes = [probe for probe in self.probes if probe in (*main.probes, lane.probes[0])]
                self._lanes.remove(lane)
                lane.close()
