"""How much each artifact directory of the workspace takes, kept up to date by a gentle background thread.

An artifact directory is a directory directly below the workspace. Our own ``.eagle_console`` and ``.eagle_trash`` are
none and are measured apart. Files that lie loose in the workspace are summed up under the name ``.``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import threading
import time
from collections.abc import Iterable
from typing import Optional

from remote.disk.growth import Growth, seconds_until
from remote.disk.mounts import mount_points
from remote.disk.tree import TreeSizes, TreeTotals
from remote.protocol.disk import ArtifactUsage, DiskSnapshot
from remote.protocol.host import Filesystem
from remote.telemetry.host import filesystem

OWN_DIRECTORIES = (".eagle_console", ".eagle_trash")

_REFRESH_SECONDS = 5.0
_DUTY = 100  # a refresh is followed by a rest this many times its work: at most 1 % of a core
_FULL_DUTY = 20  # a full pass is rare, and what it found should not be old for long
_LONGEST_REST = 120.0
_FULL_SECONDS = 600.0
_BATCH_FILES = 512
_BATCH_REST = 0.002  # lets the agent's other threads have the interpreter between two batches
_FILE_SYSTEM = ""  # its growth has no path
_FRAME_BYTES = 192 * 1024  # what the entries may take of the wire's 256 KiB


class UsageMonitor:
    """Measures the workspace again and again. ``snapshot`` never waits for the disk.

    :param refresh: the shortest time between two passes, seconds.
    """

    def __init__(self, workspace: Optional[str], refresh: float = _REFRESH_SECONDS) -> None:
        self._workspace = workspace
        self._refresh = refresh
        self._sizes = TreeSizes(self._pace)
        self._snapshot = DiskSnapshot(workspace=wire_text(workspace or ""), scanning=bool(workspace))
        self._files_seen = 0
        self._unpaced = 0
        self._next_full = 0.0
        self._last_full: Optional[int] = None
        self._growth = Growth()
        self._wake = threading.Event()
        self._cancelled = threading.Event()
        self._finished = threading.Event()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begins to measure, in the background."""
        self._thread = threading.Thread(target=self._work, name="disk-usage", daemon=True)
        self._thread.start()

    def snapshot(self) -> DiskSnapshot:
        """What is known now; during the first pass the directories that are done so far."""
        snapshot = self._snapshot
        return dataclasses.replace(snapshot, files_seen=self._files_seen) if snapshot.scanning else snapshot

    def wait(self, timeout: float) -> bool:
        """Waits for the end of the first pass; False when ``timeout`` seconds passed before."""
        return self._finished.wait(timeout)

    def rescan(self) -> None:
        """Begins a full pass now, unless one runs; ``snapshot`` shows how far it is."""
        self._next_full = 0.0
        self._wake.set()

    def cancel(self) -> None:
        """Ends the pass that runs; what was known before it stays. The next one comes when a full one is due."""
        if self._snapshot.scanning:
            self._cancelled.set()

    def close(self) -> None:
        """Stops measuring."""
        self._closing.set()
        self._wake.set()
        if self._thread:
            self._thread.join(1.0)

    def _work(self) -> None:
        while not self._closing.is_set():
            begin = time.thread_time()
            try:
                full = self._pass()
            except _Closed:
                return
            except _Cancelled:
                self._end_cancelled()
                self._rest(_FULL_SECONDS)
                continue
            rest = (time.thread_time() - begin) * (_FULL_DUTY if full else _DUTY)
            self._rest(max(self._refresh, min(rest, _LONGEST_REST)))

    def _rest(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _end_cancelled(self) -> None:
        """What the pass had not seen is not known; the next one, whenever it comes, looks at everything."""
        self._sizes.wants_full = True
        known = self._snapshot.scanned is not None
        problem = "" if known else "The first scan was cancelled: only what it had seen is shown."
        self._snapshot = dataclasses.replace(
            self._snapshot, scanning=False, files_seen=self._files_seen, files_expected=None, problem=problem
        )
        self._finished.set()

    def _pass(self) -> bool:
        full = self._sizes.wants_full or time.monotonic() >= self._next_full
        self._files_seen = self._unpaced = 0
        self._cancelled.clear()
        expected = self._last_full if full else None
        self._snapshot = dataclasses.replace(self._snapshot, scanning=True, files_expected=expected)
        problem = ""
        entries: list[ArtifactUsage] = []
        own: list[ArtifactUsage] = []
        try:
            if not self._workspace:
                problem = 'No workspace is set. Name one in the host\'s profile: workspace = "/path".'
            else:
                entries, own = self._measure(self._workspace, full)
        except OSError as error:
            problem = describe_problem(self._workspace or "", error)
        if full and not problem:
            self._last_full = self._files_seen
        capacity = filesystem(self._workspace) if self._workspace and not problem else None
        entries = self._grown(entries, capacity)
        shown, left_out = fit_frame(entries, _FRAME_BYTES)
        growth = self._growth.rate(_FILE_SYSTEM)
        self._snapshot = DiskSnapshot(
            workspace=wire_text(self._workspace or ""),
            entries=shown,
            filesystem=capacity,
            scanned=None if problem else time.time(),
            files_seen=self._files_seen,
            problem=problem,
            left_out=left_out,
            growth=growth,
            full_in=seconds_until(capacity.free, growth) if capacity else None,
            own=tuple(own),
        )
        self._finished.set()
        return full

    def _grown(self, entries: list[ArtifactUsage], capacity: Optional[Filesystem]) -> list[ArtifactUsage]:
        """The entries with their growth."""
        now = time.monotonic()
        if capacity is not None:
            self._growth.note(_FILE_SYSTEM, now, capacity.used)
        for entry in entries:
            self._growth.note(entry.path, now, entry.allocated)
        self._growth.keep([_FILE_SYSTEM, *(entry.path for entry in entries)])
        return [dataclasses.replace(entry, growth=self._growth.rate(entry.path)) for entry in entries]

    def _measure(self, workspace: str, full: bool) -> tuple[list[ArtifactUsage], list[ArtifactUsage]]:
        """The artifact directories, and our own."""
        if full:
            # Jittered, so that many agents of one shared file system do not all rescan it together.
            self._next_full = time.monotonic() + _FULL_SECONDS * random.uniform(0.8, 1.2)
        self._sizes.begin_pass(full)
        root = os.path.realpath(workspace)
        mounts = mount_points()
        entries: list[ArtifactUsage] = []
        own: list[ArtifactUsage] = []
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in _child_directories(directory):
                path = os.path.join(root, name)
                totals = self._sizes.measure(directory, name, path, mounts)
                if totals:
                    entries.append(usage(os.path.join(workspace, name), name, totals))
                    self._show_progress(entries)
            if _has_loose_files(directory):
                entries.append(usage(workspace, ".", self._sizes.loose(directory)))
            for name in OWN_DIRECTORIES:
                totals = self._sizes.measure(directory, name, os.path.join(root, name), mounts)
                if totals:
                    own.append(usage(os.path.join(workspace, name), name, totals))
        finally:
            os.close(directory)
        self._sizes.end_pass()
        return entries, own

    def _show_progress(self, entries: list[ArtifactUsage]) -> None:
        if self._snapshot.scanned is None:
            shown, left_out = fit_frame(entries, _FRAME_BYTES)
            self._snapshot = dataclasses.replace(self._snapshot, entries=shown, left_out=left_out)

    def _pace(self, files: int) -> None:
        self._files_seen += files
        self._unpaced += files
        if self._unpaced >= _BATCH_FILES:
            self._unpaced = 0
            if self._closing.wait(_BATCH_REST):
                raise _Closed
            if self._cancelled.is_set():
                raise _Cancelled


class _Closed(Exception):
    """The monitor is closing in the middle of a pass."""


class _Cancelled(Exception):
    """Somebody ended the pass."""


def usage(path: str, name: str, totals: TreeTotals) -> ArtifactUsage:
    """The wire record of one artifact directory."""
    return ArtifactUsage(
        path=wire_text(path),
        name=wire_text(name),
        allocated=totals.allocated,
        apparent=totals.apparent,
        files=totals.files,
        modified=totals.modified,
        incomplete=totals.incomplete,
        exclusive=totals.exclusive,
    )


def wire_text(name: str) -> str:
    """A file name as valid Unicode: bytes that are not UTF-8 become ``\\xNN``. For showing, not for opening."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def fit_frame(entries: Iterable[ArtifactUsage], limit: int) -> tuple[tuple[ArtifactUsage, ...], int]:
    """The entries, largest first, as far as they fit into ``limit`` bytes of JSON, and how many do not."""
    ordered = sorted(entries, key=lambda entry: (-entry.allocated, entry.path))
    size = 0
    for count, entry in enumerate(ordered):
        size += len(json.dumps(dataclasses.asdict(entry), separators=(",", ":"))) + 1
        if size > limit:
            return tuple(ordered[:count]), len(ordered) - count
    return tuple(ordered), 0


def describe_problem(workspace: str, error: OSError) -> str:
    """Why the workspace cannot be measured, and what to do about it."""
    path = wire_text(workspace)
    if isinstance(error, FileNotFoundError):
        return f"The workspace {path} does not exist. Create it on the host, or correct `workspace` in the profile."
    if isinstance(error, NotADirectoryError):
        return f"The workspace {path} is not a directory. Correct `workspace` in the profile."
    if isinstance(error, PermissionError):
        return f"The workspace {path} cannot be read by this user. Grant read access, or connect as another user."
    return f"The workspace {path} cannot be read: {error.strerror or error}."


def _child_directories(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(
            entry.name for entry in entries if entry.name not in OWN_DIRECTORIES and entry.is_dir(follow_symlinks=False)
        )


def _has_loose_files(directory: int) -> bool:
    with os.scandir(directory) as entries:
        return any(entry.is_file(follow_symlinks=False) for entry in entries)
