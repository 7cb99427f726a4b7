"""What a transfer fetches: the files of one path of a host as they were when it began, kept beside the unfinished copy.

The names come from the host, so they decide nothing before they were checked here: none leads out of the destination,
none can paint on a terminal.
"""

from __future__ import annotations

import json
import os
import tempfile
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from eagle_console.client import HostClient
from eagle_console.text import clean
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import FAILED, REFUSED, ProtocolError, RequestError
from remote.protocol.files import FileEntry

MAX_FILES = 1_000_000
"""More are not fetched: such a list alone would fill this machine's memory."""

MANIFEST_BYTES = 1024 * 1024 * 1024
SCHEMA = 1

_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")  # control characters, bytes that are no UTF-8, line ends


@dataclass(frozen=True)
class Manifest:
    """One transfer.

    :param machine: the host's machine id, so that another name of the same host goes on with the same transfer.
    :param root: the path on the host, links resolved.
    :param entries: its files; one with an empty path when ``root`` is a file itself.
    :param left_out: symbolic links and special files that are not fetched.
    """

    host: str
    machine: str
    root: str
    directory: bool
    entries: tuple[FileEntry, ...] = ()
    left_out: int = 0
    schema: int = field(default=SCHEMA)

    @property
    def size(self) -> int:
        return sum(entry.identity.size for entry in self.entries)

    @property
    def allocated(self) -> int:
        """Bytes that it takes on a disk: holes take none."""
        return sum(min(entry.identity.size, entry.allocated) for entry in self.entries)

    def remote_path(self, entry: FileEntry) -> str:
        return f"{self.root.rstrip('/')}/{entry.path}" if self.directory else self.root

    def local_path(self, part: Path, entry: FileEntry) -> Path:
        """Where a file of the transfer is while ``part`` is its unfinished copy."""
        return part / entry.path if self.directory else part

    def continues(self, older: Manifest) -> bool:
        """Whether an older transfer was of the same path of the same host."""
        return (self.machine, self.root, self.directory) == (older.machine, older.root, older.directory)


async def make(client: HostClient, host: str, path: str) -> Manifest:
    """Asks the host for the files at or below a path.

    :raises RequestError: when there is nothing to fetch, or a name cannot be a name here.
    """
    entries: list[FileEntry] = []
    page = await client.list_files(path)
    root, directory, left_out = page.root, page.directory, page.left_out
    entries += page.entries
    while page.next is not None:
        page = await client.list_files(root, page.next)
        entries += page.entries
        left_out += page.left_out
        if not page.entries or len(entries) > MAX_FILES:
            raise RequestError(FAILED, f"{root} holds too many files to fetch at once", "fetch its folders one by one")
    if not directory and len(entries) != 1:
        raise RequestError(FAILED, f"the host describes {root} as a file and lists {len(entries)}")
    if directory:
        check_names(entry.path for entry in entries)
    if not entries:
        links = f": its {left_out} symbolic links and special files are not fetched" if left_out else ""
        raise RequestError(FAILED, f"there are no files in {root}{links}")
    return Manifest(host, client.hello.machine_id, root, directory, tuple(entries), left_out)


def check_names(names: Iterable[str]) -> None:
    """Refuses a list with a name that would not stay below the destination, or not be one file there.

    :raises RequestError: ``refused``, naming the first such name.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(REFUSED, f"the host lists {clean(name, 200)!r} twice; nothing was fetched")
        seen.add(name)
        for component in name.split("/"):
            problem = name_problem(component)
            if problem:
                raise RequestError(
                    REFUSED, f"the host has a file named {clean(name, 200)!r}: {problem}; nothing was fetched"
                )


def name_problem(component: str) -> str:
    """Why a part of a path cannot be the name of a file here; empty when it can."""
    if component in ("", ".", ".."):
        return "it would lead out of the destination"
    if "/" in component or "\\" in component or "\0" in component:
        return "it is not one name"
    if any(unicodedata.category(sign) in _UNPRINTABLE for sign in component):
        return "it holds control characters or is no UTF-8"
    if len(os.fsencode(component)) > 255:
        return "it is too long"
    return ""


def sidecar(part: Path) -> Path:
    """The file that says what an unfinished copy is."""
    return part.with_name(part.name + ".json")


def save(manifest: Manifest, part: Path) -> None:
    """Writes the sidecar of an unfinished copy, atomically.

    :raises OSError: when it cannot be written.
    """
    path = sidecar(part)
    descriptor, temporary = tempfile.mkstemp(prefix=".get-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            json.dump(to_wire(manifest), file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(part: Path) -> Manifest | None:
    """What an unfinished copy is; None when nothing readable says so."""
    try:
        path = sidecar(part)
        if path.is_symlink() or path.stat().st_size > MANIFEST_BYTES:
            return None
        manifest = from_wire(Manifest, json.loads(path.read_bytes()))
        check_names(entry.path for entry in manifest.entries if manifest.directory)
    except (OSError, ValueError, ProtocolError, RequestError):
        return None
    return manifest if manifest.schema == SCHEMA else None
