"""Disk usage below the workspace (topic ``disk``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from remote.protocol.host import Filesystem


@dataclass(frozen=True)
class ArtifactUsage:
    """One artifact directory.

    :param allocated: bytes of allocated blocks, each inode counted once (what ``du -s`` prints, without the
        directories' own blocks).
    :param apparent: sum of the file sizes.
    :param incomplete: paths that could not be read, as a count; the sizes are then a lower bound.
    :param modified: newest modification time of any file in it, wall seconds.
    :param growth: bytes an hour, measured between passes; None until two passes are far enough apart.
    :param exclusive: allocated bytes that no link outside the directory shares; None where that is not known.
    """

    path: str
    name: str
    allocated: int
    apparent: int
    files: int
    modified: Optional[float] = None
    incomplete: int = 0
    growth: Optional[float] = None
    exclusive: Optional[int] = None


@dataclass(frozen=True)
class DiskSnapshot:
    """The artifact directories of a workspace, largest first.

    ``scanned`` is the wall time of the last finished pass, None while the first is under way; ``scanning`` says that a
    pass runs and ``files_seen`` how far it is. ``problem`` is set when the workspace cannot be read at all.
    ``left_out`` counts the smallest directories, where more exist than one frame can carry. ``growth`` is how fast the
    used space of the file system rises, in bytes an hour, and ``full_in`` the seconds until it is full at that speed;
    both are None while that is not known, and ``full_in`` also where it does not grow. ``files_expected`` is how many
    files the last full pass saw, while a full pass runs. ``own`` is what this program itself keeps there, its job
    records and its trash; it is no part of ``entries``.
    """

    workspace: str
    entries: tuple[ArtifactUsage, ...] = ()
    filesystem: Optional[Filesystem] = None
    scanned: Optional[float] = None
    scanning: bool = False
    files_seen: int = 0
    problem: str = ""
    left_out: int = 0
    growth: Optional[float] = None
    full_in: Optional[float] = None
    files_expected: Optional[int] = None
    own: tuple[ArtifactUsage, ...] = ()
