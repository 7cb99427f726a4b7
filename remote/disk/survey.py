"""Answers from snapshots of a workspace: triage, checkpoints, verdicts over paths."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

from remote.disk import beside
from remote.disk.collector import Collector, Pins
from remote.disk.evidence import Snapshot, Thing
from remote.disk.references import inside
from remote.disk.triage import triage
from remote.disk.usage import describe_problem, wire_text
from remote.protocol.artifacts import UNKNOWN, Artifact, Checkpoint, CheckpointList, Reason, Triage, Verdict
from remote.protocol.codec import to_wire
from remote.protocol.errors import NOT_FOUND, RequestError

FRESH_SECONDS = 5.0
"""A snapshot younger than this answers again, unless a fresh one is asked for."""

FRAME_BYTES = 192 * 1024
HIDDEN_LIMIT = 50

_NO_WORKSPACE = 'No workspace is set. Name one in the host\'s profile: workspace = "/path".'


class Survey:
    """The answers about one workspace. All methods may block and be called from any thread.

    :param workspace: absolute; None where the profile names none.
    :param pins: the pins that stand.
    :param environment: of the agent.
    """

    def __init__(
        self,
        workspace: Optional[str],
        pins: Pins = dict,
        environment: Optional[Mapping[str, str]] = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._workspace = workspace if workspace is None else os.path.normpath(workspace)
        self._collector = Collector(
            self._workspace or "/", pins, os.environ if environment is None else environment, clock
        )
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: Optional[tuple[Snapshot, dict[str, Verdict], float]] = None

    def triage(self, dirs: Sequence[str] = (), fresh: bool = False) -> Triage:
        """Everything recognised, with verdicts, the largest first and parts behind what they are parts of.

        :param dirs: only what lies at or below these, absolute or below the workspace; all where there are none.
        :param fresh: reads again even if that was done a moment ago.
        """
        workspace = self._workspace
        if workspace is None:
            return Triage("", problem=_NO_WORKSPACE)
        try:
            snapshot, verdicts = self._snapshot(0.0 if fresh else FRESH_SECONDS)
        except OSError as error:
            return Triage(wire_text(workspace), problem=describe_problem(workspace, error))
        wanted = [os.path.normpath(os.path.join(workspace, name)) for name in dirs]
        things = [thing for thing in snapshot.things if not wanted or any(inside(thing.path, name) for name in wanted)]
        shown, left_out = fit((_artifact(thing, verdicts[thing.path]) for thing in things), FRAME_BYTES)
        hidden = () if wanted else tuple(beside.deleted_open(snapshot.now)[:HIDDEN_LIMIT])
        return Triage(wire_text(workspace), shown, hidden, snapshot.now, left_out)

    def checkpoints(self, directory: str) -> CheckpointList:
        """The checkpoints of a run with their verdicts, the newest first.

        :raises RequestError: ``not_found`` where the directory is no run.
        """
        path = os.path.normpath(os.path.join(self._workspace or "/", directory))
        with self._lock:
            run = self._collector.runs.read(path)
        if run is None:
            raise RequestError(
                NOT_FOUND, f"{wire_text(path)} is no training run: it has no checkpoints and no run.yaml"
            )
        verdicts = self.verdicts([item.artifact.path for item in run.checkpoints])
        judged = tuple(_judged(item, verdicts[item.artifact.path]) for item in run.checkpoints)
        return CheckpointList(wire_text(path), judged, self._clock(), run.best_problem)

    def checkpoints_now(self, directory: str) -> Sequence[Checkpoint]:
        """The checkpoints of a run as they lie there at this moment, with verdicts as they were last made; none where
        the directory is no run."""
        with self._lock:
            run = self._collector.runs.read(directory)
            known = self._taken[1] if self._taken else {}
        if run is None:
            return ()
        return tuple(
            dataclasses.replace(item, artifact=dataclasses.replace(item.artifact, verdict=known[item.artifact.path]))
            if item.artifact.path in known
            else item
            for item in run.checkpoints
        )

    def verdicts(self, paths: Sequence[str]) -> Mapping[str, Verdict]:
        """The verdict over each path. What was not recognised is unknown, which is a guard.

        :raises RequestError: ``not_found`` where the workspace cannot be read.
        """
        try:
            known = self._snapshot(FRESH_SECONDS)[1]
            if any(os.path.normpath(path) not in known for path in paths):
                known = self._snapshot(0.0)[1]
        except OSError as error:
            raise RequestError(NOT_FOUND, describe_problem(self._workspace or "", error)) from None
        named = {path: os.path.normpath(path) for path in paths}
        return {path: known.get(name) or self._unrecognised(name, known) for path, name in named.items()}

    def forget(self) -> None:
        """The next answer reads again: something was moved, or pinned."""
        with self._lock:
            self._taken = None

    def _unrecognised(self, path: str, known: Mapping[str, Verdict]) -> Verdict:
        around = next((name for name in sorted(known, key=len, reverse=True) if inside(path, name)), "")
        what = f"it is a part of {around}, which goes as a whole" if around else "it is nothing that triage knows"
        return Verdict(UNKNOWN, (Reason("unknown_layout", what, True, path, self._clock()),))

    def _snapshot(self, age: float) -> tuple[Snapshot, dict[str, Verdict]]:
        """A snapshot that is at most ``age`` seconds old, with its verdicts.

        :raises OSError: when the workspace cannot be listed.
        """
        with self._lock:
            if self._taken is None or time.monotonic() - self._taken[2] > age:
                snapshot = self._collector.take()
                self._taken = (snapshot, triage(snapshot), time.monotonic())
            return self._taken[0], self._taken[1]


def fit(listed: Iterable[Artifact], limit: int) -> tuple[tuple[Artifact, ...], int]:
    """The artifacts as far as they fit into ``limit`` bytes of JSON, and how many do not: the smallest stay out.

    The largest that stands alone comes first; parts follow what they are parts of.
    """
    every = list(listed)
    kept: set[str] = set()
    size = 0
    for item in sorted(every, key=lambda one: (bool(one.run), -one.size.allocated, one.path)):
        size += len(json.dumps(to_wire(item), separators=(",", ":"))) + 1
        if size > limit:
            break
        kept.add(item.path)
    largest = {item.path: item.size.allocated for item in every if not item.run}
    shown = [item for item in every if item.path in kept]
    shown.sort(key=lambda one: (-largest.get(one.run or one.path, 0), one.run or one.path, bool(one.run)))
    return tuple(shown), len(every) - len(shown)


def _artifact(thing: Thing, verdict: Verdict) -> Artifact:
    return Artifact(
        path=wire_text(thing.path),
        kind=thing.kind,
        size=thing.size,
        verdict=verdict,
        run=wire_text(thing.found.parent),
        modified=thing.modified,
        movable=thing.found.movable,
        pinned=_pinned(verdict),
        detail=thing.found.detail,
    )


def _judged(item: Checkpoint, verdict: Verdict) -> Checkpoint:
    artifact = item.artifact
    path, run = wire_text(artifact.path), wire_text(artifact.run)
    judged = dataclasses.replace(artifact, path=path, run=run, verdict=verdict, pinned=_pinned(verdict))
    return dataclasses.replace(item, name=wire_text(item.name), artifact=judged)


def _pinned(verdict: Verdict) -> bool:
    return any(reason.rule == "pinned" for reason in verdict.reasons)
