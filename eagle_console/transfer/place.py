"""Where a transfer goes on this machine: its destination, the unfinished copy beside it, and the last rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from eagle_console.format import gb
from eagle_console.transfer import manifest as manifests
from eagle_console.transfer.manifest import Manifest
from remote.protocol.errors import CONFLICT, FAILED, REFUSED, RequestError


@dataclass(frozen=True)
class Place:
    """A destination. ``part`` is the unfinished copy, of which a file beside it says what it is."""

    destination: Path
    force: bool

    @property
    def part(self) -> Path:
        return self.destination.with_name(self.destination.name + ".part")

    def require_free(self) -> None:
        """Nothing where there is nothing, or it may be replaced.

        :raises RequestError: ``refused`` where something is.
        """
        if not self.force and os.path.lexists(self.destination):
            raise RequestError(
                REFUSED, f"{self.destination} is there already; nothing was fetched", "--force replaces it"
            )

    def prepare(self, manifest: Manifest) -> frozenset[str]:
        """Makes the unfinished copy of a transfer, or takes over one of an earlier try.

        :returns: the paths of the entries whose bytes may be used.
        :raises RequestError: ``refused`` when something else is there; ``failed`` without room for it.
        :raises OSError: when it cannot be made.
        """
        older = manifests.load(self.part)
        if older is None and os.path.lexists(self.part):
            raise RequestError(
                REFUSED,
                f"{self.part} is there, and no {manifests.sidecar(self.part).name} says what it is",
                "remove it, or name another destination",
            )
        kept = self._kept(manifest, older) if older is not None else frozenset()
        self._require_room(manifest, kept)
        if manifest.directory:
            self.part.mkdir(exist_ok=True)
        manifests.save(manifest, self.part)
        return kept

    def finish(self, manifest: Manifest) -> None:
        """Gives the complete copy its name.

        :raises RequestError: when something is in its place by now, or two files became one.
        :raises OSError: when it cannot be renamed.
        """
        self.require_free()
        if manifest.directory:
            files = {os.lstat(manifest.local_path(self.part, entry)).st_ino for entry in manifest.entries}
            if len(files) != len(manifest.entries):
                raise RequestError(CONFLICT, f"several of the host's names are one name in {self.part}")
        if self.destination.is_dir() and not self.destination.is_symlink():
            aside = tempfile.mkdtemp(prefix=f"{self.destination.name}.old-", dir=self.destination.parent)
            os.rename(self.destination, aside)
            os.rename(self.part, self.destination)
            shutil.rmtree(aside)
        else:
            if manifest.directory and os.path.lexists(self.destination):
                self.destination.unlink()
            os.replace(self.part, self.destination)
        manifests.sidecar(self.part).unlink(missing_ok=True)

    def discard(self, manifest: Manifest) -> None:
        """Removes the unfinished copy: it can be of no use."""
        if manifest.directory:
            shutil.rmtree(self.part, ignore_errors=True)
        else:
            self.part.unlink(missing_ok=True)
        manifests.sidecar(self.part).unlink(missing_ok=True)

    def _kept(self, manifest: Manifest, older: Manifest) -> frozenset[str]:
        """The entries that are what they were. The copies of all others are removed."""
        if not manifest.continues(older):
            self.discard(older)
            return frozenset()
        same = {entry.path for entry in older.entries} & {entry.path for entry in manifest.entries}
        now = {entry.path: entry.identity for entry in manifest.entries}
        kept = set()
        for entry in older.entries:
            local = older.local_path(self.part, entry)
            if entry.path in same and now[entry.path] == entry.identity:
                if local.is_file() and not local.is_symlink():
                    kept.add(entry.path)
            else:
                local.unlink(missing_ok=True)
        return frozenset(kept)

    def _require_room(self, manifest: Manifest, kept: frozenset[str]) -> None:
        here = 0
        for entry in manifest.entries:
            if entry.path in kept:
                here += os.lstat(manifest.local_path(self.part, entry)).st_blocks * 512
        needed = manifest.allocated - here
        free = shutil.disk_usage(self.destination.parent).free
        if needed > free:
            raise RequestError(
                FAILED,
                f"{self.destination} needs {gb(needed)} more, and {gb(free)} are free here",
                "make room, or name a destination on another disk",
            )


def destination(path: str, given: str | None) -> Path:
    """Where a path of the host goes: the given path, or its own name in the given or the working directory.

    :raises RequestError: when the path has no name that can be used here.
    """
    target = Path(given) if given else Path()
    if given and not target.is_dir():
        if not target.parent.is_dir():
            raise RequestError(FAILED, f"there is no directory {target.parent} here", "make it, or name another one")
        return target
    name = path.rstrip("/").rpartition("/")[2]
    if manifests.name_problem(name):
        raise RequestError(REFUSED, f"{path!r} has no name to use here", "name a destination")
    return target / name
