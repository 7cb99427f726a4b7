"""The GPUs of this host, read through NVML once a second.

One thread steers; it makes no call that can hang. The driver, each GPU and the names of processes have threads of
their own (see ``lanes``). ``snapshot`` puts together what is known at that moment and never waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Optional

from remote.protocol.gpu import DRIVER_ERROR, DRIVER_NO_LIBRARY, DRIVER_NOT_LOADED, DRIVER_OK, Gpu, GpuSnapshot
from remote.telemetry import nvml
from remote.telemetry.lanes import HANG_AFTER, Crew, Probe, ThreadBudget
from remote.telemetry.processes import ProcessNames
from remote.telemetry.readings import gpu_record, take
from remote.telemetry.simulated import Servers, simulated_snapshot

SIMULATE = "EAGLE_CONSOLE_SIMULATE_GPUS"
"""Set to 1 by the embedded host alone: where NVML is absent, show eight simulated GPUs, marked as such."""

_MAX_THREADS = 48  # 64 GPUs do not exist in one host; eight with four hanging calls each still fit
_RETRY_SECONDS = 10.0  # how often a missing driver is looked for
_KEEP_SECONDS = 5.0
_PROCESS_CALLS = (nvml.COMPUTE, nvml.GRAPHICS)
_SETTLING_PAUSE = 0.01  # the first snapshot should be complete as soon as possible


class GpuSampler:
    """Reads all GPUs every ``interval`` seconds once it is started.

    :param retry: seconds between two looks for a driver that is not there.
    :param servers: answers with the live servers; only the simulated GPUs use it.
    """

    def __init__(
        self,
        interval: float = 1.0,
        retry: float = _RETRY_SECONDS,
        servers: Optional[Servers] = None,
    ) -> None:
        self._interval = interval
        self._keep = max(_KEEP_SECONDS, 3 * interval)
        self._servers = servers or (lambda: ())
        self._simulate = os.environ.get(SIMULATE) == "1"
        self._budget = ThreadBudget(_MAX_THREADS)
        self._driver = nvml.Driver(retry)
        self._names = ProcessNames()
        self._driver_probe = Probe("driver", self._driver.step)
        self._names_probe = Probe("names", self._names.refresh)
        self._gpus: tuple[tuple[Crew, float], ...] = ()
        self._generation = 0
        self._closing = threading.Event()
        self._settled = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begins to read, in the background."""
        self._thread = threading.Thread(target=self._steer, name="gpus", daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Waits until everything has been read once, or found missing or hanging; False when ``timeout`` passed."""
        return self._settled.wait(timeout)

    def close(self) -> None:
        """Stops reading. Threads in a hanging call stay until it returns; they are daemons."""
        self._closing.set()
        if self._thread:
            self._thread.join(1.0)

    def snapshot(self) -> GpuSnapshot:
        """What is known now. Never waits, never raises."""
        now = time.monotonic()
        status = self._driver.status
        hanging = self._driver_probe.in_flight(now)
        silent = f"{self._driver.call} has not answered for {hanging:.0f} s." if hanging > HANG_AFTER else ""
        if status is None:
            return GpuSnapshot(DRIVER_ERROR, message=silent or "The driver has not answered yet.")
        if self._simulate and status.state in (DRIVER_NO_LIBRARY, DRIVER_NOT_LOADED):
            return simulated_snapshot(now, tuple(self._servers()))
        return GpuSnapshot(
            driver=status.state,
            gpus=self._records(now) if status.state == DRIVER_OK else (),
            message=silent or status.message or ("" if status.count else "The driver answers but shows no GPU."),
            driver_version=status.driver_version,
            cuda_version=status.cuda_version,
        )

    def _records(self, now: float) -> tuple[Gpu, ...]:
        return tuple(
            gpu_record(index, [take(probe, now) for probe in crew.probes], now, seen, self._keep, self._names.get)
            for index, (crew, seen) in enumerate(self._gpus)
        )

    def _steer(self) -> None:
        driver = Crew("driver", (self._driver_probe,), self._budget)
        names = Crew("process-names", (self._names_probe,), self._budget)
        next_round = time.monotonic()
        while not self._closing.is_set():
            now = time.monotonic()
            renewed = self._follow_driver()
            if now >= next_round:
                next_round = max(next_round + self._interval, now)
                driver.start_round()
                renewed = True
            if renewed:
                self._each(Crew.start_round)
            self._each(partial(Crew.relieve, now=now))
            self._each(_ask_lost_again)
            if self._want_names() or renewed:
                names.start_round()
            if not self._settled.is_set() and self._complete(now, driver, names):
                self._settled.set()
            self._closing.wait(self._interval / 4 if self._settled.is_set() else _SETTLING_PAUSE)
        for crew in (driver, names):
            crew.close()
        self._each(Crew.close)

    def _follow_driver(self) -> bool:
        """Takes new readers when the driver came up, went away or shows another number of GPUs."""
        status = self._driver.status
        generation = status.generation if status else 0
        if generation == self._generation or status is None:
            return False
        self._generation = generation
        self._each(Crew.close)
        now = time.monotonic()
        self._gpus = tuple(
            (Crew(f"gpu-{index}", nvml.gpu_probes(self._driver.nvml, index), self._budget), now)
            for index in range(status.count)
        )
        return True

    def _want_names(self) -> bool:
        """Notes whose names are needed; True when one is not known yet."""
        lists = (probe.value for crew, _ in self._gpus for probe in crew.probes if probe.name in _PROCESS_CALLS)
        self._names.wanted = frozenset(pid for holders in lists if holders for pid, _ in holders)
        return not self._names.complete()

    def _complete(self, now: float, driver: Crew, names: Crew) -> bool:
        if not driver.settled(now):
            return False
        if not self._gpus:
            return self._driver.status is None or not self._driver.status.count
        gpus_read = all(crew.settled(now) for crew, _ in self._gpus)
        return gpus_read and (self._names.complete() or self._names_probe.in_flight(now) > HANG_AFTER)

    def _each(self, action: Callable[[Crew], None]) -> None:
        for crew, _ in self._gpus:
            action(crew)


def _ask_lost_again(crew: Crew) -> None:
    """A GPU that came back after a reset answers only to a new handle."""
    if any(probe.outcome and probe.outcome.error and nvml.means_lost(probe.outcome.error) for probe in crew.probes):
        crew.probes[0].forget()
