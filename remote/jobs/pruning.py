"""Retention beside a training job: after each saved epoch the run is pruned by the recommended policy.

The work is done in a thread of its own. The supervision of the job waits for nothing and is hindered by nothing here:
what goes wrong becomes a sentence, and the run keeps its checkpoints.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Optional

from pipeline.plan.events import EpochSaved
from remote.policy import Policy
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.errors import RequestError
from remote.protocol.jobs import JobSpec
from remote.protocol.trash import TRASHED, Receipt

PARAMETER = "retention"

Prune = Callable[[str, str, str], Optional[Receipt]]
"""Prunes a run (directory, level, job) and returns the receipt, None where nothing may go now."""


class Retention:
    """Prunes the run of one job, one pass at a time.

    :param prune: what does it; it may block.
    """

    def __init__(self, level: str, job: str, prune: Prune) -> None:
        self._level = level
        self._job = job
        self._prune = prune
        self._seen: Optional[EpochSaved] = None
        self._wanted: queue.Queue[str] = queue.Queue(1)
        self._told: queue.SimpleQueue[tuple[bool, str]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._running = False
        self._said = ""

    def offer(self, saved: Sequence[EpochSaved]) -> None:
        """Takes note of the epochs that are saved; a new one starts a pass, or another one after that which runs."""
        newest = max(saved, key=lambda epoch: epoch.epoch, default=None)
        if newest is None or newest == self._seen:
            return
        self._seen = newest
        self._idle.clear()
        try:
            self._wanted.put_nowait(os.path.dirname(newest.path))
        except queue.Full:
            return  # the pass that waits will see this epoch too
        if not self._running:
            self._running = True
            threading.Thread(target=self._work, name="retention", daemon=True).start()

    def news(self) -> Sequence[tuple[bool, str]]:
        """The sentences since the last call, each with whether all is well."""
        return [self._told.get() for _ in range(self._told.qsize())]

    def wait(self, seconds: float) -> None:
        """Waits until nothing is under way, so long at most; what is cut off is mended from the journal."""
        self._idle.wait(seconds)

    def _work(self) -> None:
        while True:
            self._pass(self._wanted.get())
            if self._wanted.empty():
                self._idle.set()

    def _pass(self, run: str) -> None:
        try:
            receipt = self._prune(run, self._level, self._job)
        except Exception as error:
            kind = "" if isinstance(error, RequestError) else f"{type(error).__name__}: "
            sentence = f"Retention: {kind}{error}."
            if sentence != self._said:
                self._said = sentence
                self._told.put((False, sentence))
        else:
            if receipt is not None:
                self._told.put((True, _sentence(receipt)))


def of_job(spec: JobSpec, policy: Policy) -> Optional[Retention]:
    """The retention that a job asks for; None where it asks for none, or nothing may be changed here."""
    level = spec.parameters.get(PARAMETER)
    if level not in (LEVEL_TRIM, LEVEL_WHOLE) or policy.readonly or not policy.workspace:
        return None
    return Retention(str(level), spec.id, _pruner(policy))


def _pruner(policy: Policy) -> Prune:
    def prune(run: str, level: str, job: str) -> Optional[Receipt]:
        from remote.disk.retaining import engine, retain  # loaded by the first epoch that is saved

        return retain(engine(policy), run, level, job)

    return prune


def _sentence(receipt: Receipt) -> str:
    gone = sorted(os.path.basename(item.path) for item in receipt.items if item.state == TRASHED)
    return f"Retention moved {len(gone)} into the trash ({', '.join(gone)}); undo {receipt.id} brings them back."
