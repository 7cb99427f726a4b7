"""The outlook of a job that loads a model: once a second its counters, and in the end its place in the history."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from typing import Optional

from remote import procfs
from remote.jobs.records import JOBS_FOLDER
from remote.jobs.starts import StartsFile
from remote.protocol.jobs import JobSpec
from remote.protocol.progress import Progress
from remote.watch import counting
from remote.watch import vllm_wording as wording
from remote.watch.history import StartKey
from remote.watch.outlook import Outlook

SECONDS = 1.0
"""Between two looks: a look reads a few small texts for every process."""

WATCHER = "vllm_load"


class LoadWatch:
    """Times are seconds since the start of the job.

    :param starts: the history that is read at once, and written when the start is ready; None for none.
    """

    def __init__(self, key: StartKey, model: str, starts: Optional[StartsFile]) -> None:
        self._weights = counting.checkpoint(model)
        self._starts = starts
        key = dataclasses.replace(key, filesystem=key.filesystem or self._weights.filesystem)
        self._outlook = Outlook(key, self._weights, starts.read() if starts is not None else ())
        self._looked = float("-inf")
        self._shown: Optional[Progress] = None
        self._told: Optional[Progress] = None
        self._over = False

    def progress(self, told: Progress, version: str, activity: int, pids: Iterable[int], at: float) -> Progress:
        """The progress with the outlook, which changes once a second.

        :param told: what the log says; ``activity`` changes with every line of it.
        """
        if told.ready and not self._over:
            self._over = True
            self._remember(told)
        if self._over:
            return told
        if self._shown is not None and at - self._looked < SECONDS and told == self._told:
            return self._shown
        if at - self._looked >= SECONDS:
            self._looked = at
            with_ranks = told.phase in (wording.WEIGHTS, wording.DRAFT)
            self._outlook.look(counting.read(pids, self._weights, at, with_ranks), activity)
        self._told = told
        self._shown = self._outlook.improve(told, version, at)
        return self._shown

    def _remember(self, told: Progress) -> None:
        """Keeps the start for later ones, if it was watched on its way."""
        if self._starts is None or self._shown is None:
            return
        start = self._outlook.record(told, time.time())
        if start is not None:
            try:
                self._starts.append(start)
            except OSError:
                return  # a full disk or one that is read only: the next start is then predicted without this one


def of_job(directory: str, spec: JobSpec) -> Optional[LoadWatch]:
    """The outlook of a job, None for one that loads no model."""
    if spec.watcher != WATCHER:
        return None
    parameters = spec.parameters
    model, draft = parameters.get("verifier"), parameters.get("draft")
    parallel = parameters.get("tensor_parallel")
    key = StartKey(
        model=model if isinstance(model, str) else "",
        draft=draft if isinstance(draft, str) else "",
        tensor_parallel=parallel if isinstance(parallel, int) else 0,
        cache=counting.compile_cache({**os.environ, **spec.env}),
        machine=procfs.machine_id(),
    )
    folder = os.path.dirname(os.path.abspath(directory))
    below = folder.endswith(os.sep + JOBS_FOLDER)
    workspace = folder[: -len(JOBS_FOLDER) - 1] if below else None
    return LoadWatch(key, key.model, StartsFile(workspace) if workspace else None)


def of_server(
    model: Optional[str], cwd: Optional[str], tensor_parallel: Optional[int], starts: Optional[StartsFile]
) -> LoadWatch:
    """The outlook of a server that somebody else started, from what its command line says."""
    folder = os.path.join(cwd or "/", model) if model else ""
    key = StartKey(
        model=folder if os.path.isdir(folder) else model or "",
        tensor_parallel=tensor_parallel or 0,
        cache=counting.compile_cache(os.environ),
        machine=procfs.machine_id(),
    )
    return LoadWatch(key, folder, starts)
