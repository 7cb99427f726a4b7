"""Reads a workspace, what lies beside it and what refers to it into one snapshot.

What was read is kept: sizes by directory, headers and prompts by file. A collector that is asked again looks only at
what has changed.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Optional

from remote.disk import artifacts, beside, rebuild, references
from remote.disk.artifacts import Found, recognise
from remote.disk.completeness import files
from remote.disk.evidence import Snapshot, Thing
from remote.disk.mounts import mount_points
from remote.disk.prompts import Prompts
from remote.disk.references import Below, Reference, inside
from remote.disk.retention import complete
from remote.disk.runs import Run, Runs
from remote.disk.sized import sized
from remote.disk.syscalls import Syscalls
from remote.disk.tree import TreeSizes, TreeTotals
from remote.disk.uses import Holders, Use, look
from remote.protocol.artifacts import Size
from remote.protocol.trash import Pin

FULL_SECONDS = 600.0
"""Files that are neither large nor new are looked at again after so long."""

Pins = Callable[[], Mapping[str, Pin]]
"""The pins that stand, by absolute path."""


class Collector:
    """Takes snapshots of one workspace. For one thread at a time.

    :param workspace: absolute.
    :param pins: the pins that stand.
    :param environment: of the agent; tells where this user's caches are.
    :param clock: wall seconds.
    """

    def __init__(
        self, workspace: str, pins: Pins, environment: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        self.runs = Runs(clock)
        self._workspace = workspace.rstrip("/") or "/"
        self._pins = pins
        self._environment = environment
        self._clock = clock
        self._prompts = Prompts()
        self._sizes = TreeSizes(lambda count: None, clock)
        self._syscalls = Syscalls()
        self._next_full = 0.0

    def take(self) -> Snapshot:
        """The workspace as it is now.

        :raises OSError: when it cannot be listed.
        """
        workspace, real = self._workspace, os.path.realpath(self._workspace)
        mounts = mount_points()
        full = self._sizes.wants_full or time.monotonic() >= self._next_full
        if full:
            self._next_full = time.monotonic() + FULL_SECONDS
        self._sizes.begin_pass(full)
        holders = Holders(real)
        links = [item.path for item in os.scandir(workspace) if item.is_symlink()]
        things = []
        for item in [*recognise(workspace, self.runs), *self._beside()]:
            resolved = real + item.path[len(workspace) :] if inside(item.path, workspace) else item.path
            try:
                thing = self._thing(item, resolved, mounts, holders, links)
            except OSError:
                continue  # gone since it was listed
            things.append(thing)
        self._sizes.end_pass()
        pins = {os.path.realpath(path): pin.who for path, pin in self._pins().items()}
        named = tuple(self._references(things, real, links))
        return Snapshot(workspace, self._clock(), tuple(things), named, pins, mounts)

    def _beside(self) -> Iterator[Found]:
        for item in (*beside.caches(self._environment), *beside.shared_memory(), *beside.core_dumps()):
            if not inside(item.path, self._workspace):
                yield item

    def _thing(self, item: Found, resolved: str, mounts: frozenset[str], holders: Holders, links: list[str]) -> Thing:
        """What is known of a thing; the symbolic links in it are added to ``links``.

        :raises OSError: when it is gone.
        """
        oldest: Optional[float] = None
        if item.checkpoint is not None:
            size, modified = item.checkpoint.artifact.size, _newest(item.path)
        elif item.folder:
            totals = self._measure(item.path, resolved, mounts)
            size = Size(totals.allocated, totals.apparent, totals.exclusive, totals.files)
            modified, oldest = totals.modified, totals.oldest
            if item.movable and not item.parent:
                links += totals.symlinks
        else:
            size, modified = sized(item.path), os.lstat(item.path).st_mtime
        return Thing(
            found=item,
            real=resolved,
            size=size,
            modified=modified,
            oldest=oldest,
            owner=_foreign_owner(item.path),
            verifier=_verifier(item.run) if item.run is not None and item.kind == artifacts.RUN else "",
            prompts=self._prompts_of(item),
            rebuild=rebuild.of_states(item.samples, *self._made(item, oldest, modified)),
            use=self._use(item, holders),
        )

    def _measure(self, path: str, resolved: str, mounts: frozenset[str]) -> TreeTotals:
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return self._sizes.measure(parent, os.path.basename(path), resolved, mounts) or TreeTotals()
        finally:
            os.close(parent)

    def _made(
        self, item: Found, oldest: Optional[float], newest: Optional[float]
    ) -> tuple[Optional[float], Optional[float]]:
        """First and last time of a set of hidden states; of what holds others too, nothing is told by them."""
        return (oldest, newest) if item.kind == artifacts.HIDDEN_STATES else (None, None)

    def _use(self, item: Found, holders: Holders) -> Optional[Use]:
        if item.kind == artifacts.OWN or (not item.movable and item.folder):
            return None
        return look(item.path, holders, self._syscalls)

    def _prompts_of(self, item: Found) -> frozenset[bytes]:
        if item.kind != artifacts.DATA:
            return frozenset()
        try:
            there = files(item.path)
        except OSError:
            return frozenset()
        name = "prompts.jsonl"
        return self._prompts.read(os.path.join(item.path, name), there[name]) if name in there else frozenset()

    def _references(self, things: list[Thing], real: str, links: list[str]) -> Iterator[Reference]:
        below = Below(real)
        yield from references.of_processes(below, [os.getpid()])
        yield from references.of_locks(self._workspace)
        yield from references.of_links(below, links)
        yield from references.of_manifests(below, self._workspace)
        for thing in things:
            if thing.kind == artifacts.RUN and thing.run is not None:
                bases = (real, os.path.dirname(thing.real), thing.real)
                yield from references.of_settings(below, thing.run.settings, thing.real, bases)
            if thing.kind in (artifacts.CHECKPOINT, artifacts.DRAFT):
                yield from references.of_config(below, thing.real, thing.real)


def _verifier(run: Run) -> str:
    """As the run's settings name it, else as a checkpoint of it does."""
    named = run.settings.get("verifier_name_or_path")
    if named:
        return named
    whole = next((item for item in run.checkpoints if complete(item)), None)
    return references.verifier(os.path.join(whole.artifact.path, "config.json")) if whole else ""


def _newest(folder: str) -> Optional[float]:
    return max((entry.modified for entry in files(folder).values()), default=None)


def _foreign_owner(path: str) -> Optional[str]:
    """The user that something belongs to, where that is somebody else; what lies directly in it is looked at too.

    :raises OSError: when it is gone.
    """
    mine = os.geteuid()
    owners = {os.lstat(path).st_uid}
    if os.path.isdir(path):
        try:
            with os.scandir(path) as entries:
                owners |= {item.stat(follow_symlinks=False).st_uid for item in entries}
        except OSError:
            pass  # what cannot be listed is said elsewhere
    others = sorted(owners - {mine})
    if not others:
        return None
    try:
        return f"the user {pwd.getpwuid(others[0]).pw_name}"
    except KeyError:
        return f"the user with the id {others[0]}"
