"""One adopted program, watched by a thread of its own: its log, its server's health and metrics, and its end."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Optional

from remote import procfs
from remote.adopt import servers
from remote.adopt.outputs import output_of
from remote.adopt.reading import LogReading
from remote.adopt.servers import Address
from remote.jobs import loadwatch
from remote.jobs.loadwatch import LoadWatch
from remote.jobs.starts import StartsFile
from remote.protocol import adopted, jobs
from remote.protocol.adopted import Adopted
from remote.protocol.progress import Progress
from remote.protocol.serving import Serving
from remote.watch import serving
from remote.watch import vllm_wording as wording
from remote.watch.serving import Reading

TURN_SECONDS = 0.25
"""How often a log is looked at: arrival times are as exact as this."""

LOADING_SECONDS = 1.0
READY_SECONDS = 5.0
"""How often a server is asked while it loads, and once it is ready."""

FAILURES_UNTIL_UNHEALTHY = 3
OUTPUT_SECONDS = 15.0
"""How often it is looked up where the output of a process goes, while no file was found."""

RATE_SECONDS = 10.0
"""The time that rates are over, about: shorter ones jump from nothing to everything and back."""


class Watch:
    """One program, or a log alone. ``snapshot`` never blocks; everything that can is done by the thread.

    :param record: what is known of it at first; its ``log`` is followed, or looked for where it is None.
    :param expected_port, tls: what its command line says about its server.
    :param starts: the history of starts, for the estimate of a load; None for none.
    """

    def __init__(
        self,
        record: Adopted,
        expected_port: Optional[int] = None,
        tls: bool = False,
        uid: Optional[int] = None,
        starts: Optional[StartsFile] = None,
    ) -> None:
        self.record = record
        self.ended_at: Optional[float] = None
        self._expected_port, self._tls, self._uid = expected_port, tls, uid
        self._starts = starts
        self._load: Optional[LoadWatch] = None
        self._came = time.time()
        self._reading: Optional[LogReading] = None
        self._metrics: list[Reading] = []
        self._serving: Optional[Serving] = None
        self._misses = 0
        self._ask_at = 0.0
        self._look_at = 0.0
        self._changed = threading.Condition()
        self._turns = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {record.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits until it was looked at once; whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._turns > 0, seconds)

    def snapshot(self) -> Adopted:
        """What is known now."""
        record = self.record
        if record.started is None or record.seconds is None:
            return record
        until = self.ended_at or time.time()
        return dataclasses.replace(record, seconds=max(0.0, until - record.started))

    def update(self, **changes: object) -> None:
        """Changes what is shown of it: other processes found, a stop asked for."""
        with self._changed:
            self.record = dataclasses.replace(self.record, **changes)  # type: ignore[arg-type]

    def close(self) -> None:
        self._closed.set()

    @property
    def over(self) -> bool:
        return self.ended_at is not None

    def _run(self) -> None:
        while not self._closed.is_set():
            now = time.monotonic()
            lives = self._lives()
            self._look_for_output(now)
            if lives:
                self._ask(now)
                if self._reading is not None:
                    self._reading.turn(self._at())
            elif self._reading is not None:
                self._reading.end(self._at())
            self._publish(lives)
            if not lives:
                return
            self._closed.wait(TURN_SECONDS)

    def _lives(self) -> bool:
        main = self.record.main
        return main is None or procfs.alive(main)

    def _at(self) -> float:
        started = self.record.started
        return max(0.0, time.time() - (self._came if started is None else started))

    def _look_for_output(self, now: float) -> None:
        if self._reading is not None or now < self._look_at:
            return
        self._look_at = now + OUTPUT_SECONDS
        record = self.record
        if record.log is None and record.main is not None:
            output = output_of(record.main.pid)
            self.update(log=output.path, log_note=output.note)
            record = self.record
        if record.log is not None:
            self._reading = LogReading(record.log, record.kind, record.started)

    def _ask(self, now: float) -> None:
        """Asks the server, when it is time: only where the process itself listens, so that nobody answers for it."""
        record = self.record
        if record.kind != adopted.KIND_SERVER or record.main is None or now < self._ask_at:
            return
        problem, address, can_be_asked = self._find_server(record)
        if address is not None and not problem:
            problem = servers.health(address)
        self._misses = self._misses + 1 if problem else 0
        was = bool(record.healthy)
        healthy = not problem or (was and self._misses < FAILURES_UNTIL_UNHEALTHY)
        self._ask_at = now + (READY_SECONDS if healthy and not problem else LOADING_SECONDS)
        self.update(
            port=address.port if address is not None else None,
            healthy=healthy if can_be_asked else None,
            health_note=problem,
        )
        if self._reading is not None:
            self._reading.healthy(self._at(), healthy)
        if healthy and not problem and address is not None:
            self._read_metrics(address)
        elif not healthy:
            self._metrics, self._serving = [], None

    def _find_server(self, record: Adopted) -> tuple[str, Optional[Address], bool]:
        """What stands in the way of asking the server, its address, and whether it can ever be asked from here."""
        assert record.main is not None
        if servers.in_another_network(record.main.pid):
            return "it listens in a network of its own (a container), which is not asked from here", None, False
        pids = [process.pid for process in record.processes] or [record.main.pid]
        address = servers.address_of(pids, self._uid, self._expected_port)
        if address is None:
            return "it does not listen yet", None, True
        if self._tls:
            return "it speaks TLS, which is not asked from here", address, False
        if address.host is None:
            return "it does not listen on loopback, and is not asked elsewhere", address, False
        return "", address, True

    def _read_metrics(self, address: Address) -> None:
        text = servers.metrics(address)
        now = serving.parse(text, time.monotonic()) if text is not None else None
        if now is None:
            return
        # Kept: the readings of the last seconds, and one that is older than them to compare with.
        while len(self._metrics) > 1 and now.at - self._metrics[1].at >= RATE_SECONDS:
            self._metrics.pop(0)
        self._serving = serving.compare(self._metrics[0] if self._metrics else None, now)
        self._metrics.append(now)

    def _with_outlook(self, reading: LogReading, told: Progress, lives: bool, at: float) -> Progress:
        """The progress of a server's load with its estimate."""
        record = self.record
        if not lives or record.kind != adopted.KIND_SERVER or record.main is None or record.started is None:
            return told
        if self._load is None:
            self._load = loadwatch.of_server(record.model, record.cwd, record.tensor_parallel, self._starts)
        pids = [process.pid for process in record.processes] or [record.main.pid]
        told = dataclasses.replace(told, ready=bool(record.healthy))
        return self._load.progress(told, reading.version, reading.offset, pids, at)

    def _publish(self, lives: bool) -> None:
        at = self._at()
        reading = self._reading
        with self._changed:
            record = self.record
            changes: dict[str, object] = {"serving": self._serving if lives else None}
            progress = record.progress
            if record.started is None:
                changes["seconds"] = at
            if reading is not None:
                progress = self._with_outlook(reading, reading.progress(at), lives, at)
                changes.update(training=reading.training(at if lives else None), problem=reading.problem)
                changes["failure"] = None if record.healthy and lives else reading.failure()
                if record.kind == adopted.KIND_LOG:
                    changes["kind"] = _kind_of(reading)
            ready = bool(record.healthy) and lives
            if ready and reading is None:
                progress = Progress(wording.READY)
            if not lives:
                self.ended_at = time.time()
                progress = _ended(progress, at)
                changes.update(healthy=None, health_note="", port=None)
            changes["progress"] = dataclasses.replace(progress, ready=ready)
            if record.state not in (jobs.STOPPING, jobs.STOPPED):  # then whoever ends it has the word
                changes["state"] = (jobs.READY if ready else jobs.RUNNING) if lives else _end_state(reading)
            self.record = dataclasses.replace(record, **changes)  # type: ignore[arg-type]
            self._turns += 1
            self._changed.notify_all()


def _kind_of(reading: LogReading) -> str:
    """What a log turned out to be of, for one that somebody asked to follow."""
    if reading.training() is not None:
        return adopted.KIND_TRAINING
    return adopted.KIND_SERVER if reading.says_load() else adopted.KIND_LOG


def _ended(progress: Progress, at: float) -> Progress:
    """How far it came; nothing of it goes on."""
    phases = tuple(dataclasses.replace(phase, end=at if phase.end is None else phase.end) for phase in progress.phases)
    return dataclasses.replace(progress, phases=phases, detail="")


def _end_state(reading: Optional[LogReading]) -> str:
    done = reading is not None and reading.training() is not None and reading.training_complete()
    return jobs.DONE if done else jobs.GONE
