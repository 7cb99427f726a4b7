"""Ending what holds GPU memory, exactly what was named, and waiting until NVML says that the memory is back."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from remote import procfs
from remote.gpus import leftover, looking
from remote.gpus.holding import Surroundings, holders
from remote.gpus.leftover import Evidence
from remote.jobs.ending import Ending
from remote.jobs.orphans import LeftOver
from remote.journal import Journal
from remote.policy import Policy
from remote.protocol import freeing
from remote.protocol.errors import FAILED, NOT_FOUND, RequestError
from remote.protocol.freeing import FreedGpu, FreeReport, GpuHolder, GpuHolders, GpuMemory, HolderOutcome
from remote.protocol.gpu import DRIVER_OK, GpuSnapshot
from remote.protocol.jobs import ProcessId

GRACE_SECONDS = 20.0
"""After SIGTERM to a program's main process; then what is left of it is ended."""

JOB_SECONDS = 320.0
"""How long a job may take to stop: a trainer has 300 s to save."""

SETTLE_SECONDS = 30.0
"""How long the driver may take to give the memory of ended processes back."""

READING_SECONDS = 2.5
"""After an end, until NVML has been read anew (it is read once a second)."""

ENDING, SETTLING = "ending", "settling"
"""What a running report waits for."""

_TURN = 0.1
_NO_SESSION = -1  # a holder may share its session with a shell
_MPS = "nvidia-cuda-mps"


@dataclass(frozen=True)
class Target:
    """A process to be ended, as it was shown: a pid whose start time is another one is not touched."""

    pid: int
    start_ticks: int


class Freeing:
    """Who holds GPU memory on this host, and the end of it.

    :param snapshot: the GPUs as last read.
    :param surroundings: jobs and programs as they are now.
    :param stop_job: asks a job of ours to stop; its runner ends it the way its stage needs.
    """

    def __init__(
        self,
        policy: Policy,
        journal: Optional[Journal],
        snapshot: Callable[[], GpuSnapshot],
        surroundings: Callable[[], Surroundings],
        stop_job: Callable[[str, str], object],
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._policy = policy
        self._journal = journal
        self._snapshot = snapshot
        self._surroundings = surroundings
        self._stop_job = stop_job
        self._settle_seconds = settle_seconds
        self._reports: dict[str, FreeReport] = {}

    def holders(self) -> GpuHolders:
        """Everything that holds GPU memory now. Changes nothing."""
        snapshot = self._snapshot()
        found = self._holders(snapshot)
        evidence = _evidence()
        memory = tuple(
            GpuMemory(gpu.index, gpu.name, gpu.memory_used, gpu.memory_total, leftover.explain(gpu, found, evidence))
            for gpu in snapshot.gpus
        )
        problem = "" if snapshot.driver == DRIVER_OK else snapshot.message or snapshot.driver
        return GpuHolders(found, memory, problem, snapshot.simulated)

    def free(self, targets: Sequence[Target], force: Collection[str], requested_by: str) -> FreeReport:
        """Begins to end the targets with everything below them; ``report`` says how far it is.

        :param force: names that lift a refusal: job ids and users.
        :raises RequestError: ``refused`` on a read-only connection, ``failed`` where the GPUs cannot be read or the
            journal cannot be written; nothing has happened then.
        """
        self._policy.require_writable()
        before = self._snapshot()
        if before.driver != DRIVER_OK:
            raise RequestError(FAILED, f"the GPUs cannot be read: {before.message or before.driver}")
        chosen, outcomes = _chosen(self._holders(before), targets, force)
        if chosen:
            self._note(chosen, requested_by)
        began = FreeReport(uuid.uuid4().hex[:12], running=True, phase=ENDING, processes=tuple(outcomes))
        self._reports[began.id] = began
        work = threading.Thread(
            target=self._run, args=(began, before, chosen, requested_by), name="free gpus", daemon=True
        )
        work.start()
        return began

    def report(self, name: str) -> FreeReport:
        """How far a freeing is that this agent began.

        :raises RequestError: ``not_found`` for another one.
        """
        try:
            return self._reports[name]
        except KeyError:
            raise RequestError(NOT_FOUND, f"no freeing {name} was begun over this connection") from None

    def _run(self, report: FreeReport, before: GpuSnapshot, chosen: Sequence[GpuHolder], requested_by: str) -> None:
        began = time.monotonic()

        def tell(**news: Any) -> None:
            nonlocal report
            report = dataclasses.replace(report, seconds=round(time.monotonic() - began, 1), **news)
            self._reports[report.id] = report

        try:
            outcomes = self._end(chosen, requested_by)
            tell(phase=SETTLING, processes=(*report.processes, *outcomes))
            gpus = self._settled(before, {share.gpu for holder in chosen for share in holder.shares})
            tell(phase="", gpus=gpus, running=False)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = error.message if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
            tell(phase="", running=False, problem=said)

    def _holders(self, snapshot: GpuSnapshot) -> tuple[GpuHolder, ...]:
        pids = {process.pid for gpu in snapshot.gpus for process in gpu.processes or ()}
        return holders(snapshot, looking.facts(pids), self._surroundings()) if pids else ()

    def _note(self, chosen: Sequence[GpuHolder], requested_by: str) -> None:
        if self._journal is None:
            return
        listed = "; ".join(f"{holder.pid} of {holder.user}: {holder.command or holder.name}" for holder in chosen)
        text = f"ends {len(chosen)} process{'es' if len(chosen) != 1 else ''} that hold GPU memory: {listed[:2000]}"
        held = sum(holder.memory or 0 for holder in chosen)
        self._journal.append("gpus free", text, requested_by=requested_by, size=held)

    def _end(self, chosen: Sequence[GpuHolder], requested_by: str) -> list[HolderOutcome]:
        jobs = [holder for holder in chosen if holder.job]
        for job in dict.fromkeys(holder.job for holder in jobs):
            self._stop_job(job or "", requested_by)
        endings: dict[ProcessId, _Program] = {}
        for holder in chosen:
            if not holder.job and holder.main is not None:
                endings.setdefault(holder.main, _Program(holder.main, holder.members)).holders.append(holder)
        while not all(program.step() for program in endings.values()):
            time.sleep(_TURN)
        outcomes = [outcome for program in endings.values() for outcome in program.outcomes()]
        return outcomes + _jobs_ended(jobs)

    def _settled(self, before: GpuSnapshot, touched: Collection[int]) -> tuple[FreedGpu, ...]:
        """The GPUs once their memory is back or other processes alone hold it, or once it has not come for too long."""
        began = time.monotonic()
        while True:
            after = self._snapshot()
            waited = time.monotonic() - began
            unclaimed = any(gpu.memory_used and not gpu.processes for gpu in after.gpus if gpu.index in touched)
            if not touched or (waited > READING_SECONDS and not unclaimed) or waited > self._settle_seconds:
                break
            time.sleep(_TURN)
        found, evidence = self._holders(after), _evidence()
        previous = {gpu.index: gpu.memory_used for gpu in before.gpus}
        return tuple(
            FreedGpu(
                gpu.index,
                previous.get(gpu.index),
                gpu.memory_used,
                gpu.memory_used == 0,
                leftover.explain(gpu, found, evidence) or _held(gpu.index, found),
            )
            for gpu in after.gpus
        )


def _chosen(
    holders: Sequence[GpuHolder], targets: Sequence[Target], force: Collection[str]
) -> tuple[list[GpuHolder], list[HolderOutcome]]:
    """What is to be ended, and the outcomes of what is not."""
    known = {holder.pid: holder for holder in holders}
    chosen: list[GpuHolder] = []
    outcomes: list[HolderOutcome] = []
    for target in targets:
        holder = known.get(target.pid)
        if holder is None or (holder.process is not None and holder.process.start_ticks != target.start_ticks):
            note = "the process that was shown does not hold GPU memory any more"
            outcomes.append(HolderOutcome(target.pid, freeing.GONE, note=note))
        elif holder.process is None or (holder.refused and (not holder.force or holder.force not in force)):
            outcomes.append(HolderOutcome(target.pid, freeing.REFUSED, holder.command, holder.refused))
        else:
            chosen.append(holder)
    return chosen, outcomes


class _Program:
    """A program on its way to its end, with the holders of memory that are parts of it."""

    def __init__(self, main: ProcessId, members: Sequence[ProcessId]) -> None:
        self.holders: list[GpuHolder] = []
        self._main = main
        self._killed = False
        left = LeftOver(members, _NO_SESSION)
        left.members()  # what descends from it must be known before it ends and leaves orphans
        self._ending = Ending(main, left.members, self._report)
        self._ending.ask(time.monotonic(), GRACE_SECONDS)

    def step(self) -> bool:
        """Sends what is due; True when nothing is left of it, or nothing more can be done."""
        if not self._ending.over:
            now, lives = time.monotonic(), procfs.alive(self._main)
            if not lives:
                self._ending.main_ended(now)
            self._ending.step(now, lives)
        return self._ending.over

    def outcomes(self) -> list[HolderOutcome]:
        """One for each holder."""
        word = freeing.KILLED if self._killed else freeing.ENDED
        left = {process.pid for process in self._ending.survivors}
        note = f"could not be ended: {', '.join(map(str, sorted(left)))}; it may hang in the driver" if left else ""
        return [
            HolderOutcome(holder.pid, freeing.SURVIVED if left else word, holder.command, note)
            for holder in self.holders
        ]

    def _report(self, number: int, reached: Sequence[ProcessId]) -> None:
        self._killed = self._killed or number == signal.SIGKILL


def _jobs_ended(holders: Sequence[GpuHolder]) -> list[HolderOutcome]:
    """Waits for jobs that were asked to stop: their runners end them, each in its stage's own time."""
    deadline = time.monotonic() + JOB_SECONDS
    while any(_lives(holder) for holder in holders) and time.monotonic() < deadline:
        time.sleep(_TURN)
    return [
        HolderOutcome(holder.pid, freeing.SURVIVED, holder.command, f"the job {holder.job} is still stopping")
        if _lives(holder)
        else HolderOutcome(holder.pid, freeing.ENDED, holder.command, f"the job {holder.job} was stopped")
        for holder in holders
    ]


def _lives(holder: GpuHolder) -> bool:
    return holder.process is not None and procfs.alive(holder.process)


def _held(index: int, holders: Sequence[GpuHolder]) -> str:
    pids = [str(holder.pid) for holder in holders if any(share.gpu == index for share in holder.shares)]
    return f"still held by {', '.join(pids[:8])}" if pids else ""


def _evidence() -> Evidence:
    return Evidence(tuple(process.pid for process in looking.named(_MPS)), tuple(looking.xids()))
