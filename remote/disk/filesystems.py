"""How strongly the disuse of a file can be proven on a file system, and where deletion is refused. Pure but for /proc.

By the kernel: a lease on ext4, xfs, btrfs or tmpfs sees every opener on this kernel, in whatever namespace. On overlay
it sees the openers of the merged path, and not those of a layer below it. Network and FUSE file systems have openers on
other machines, or behind a daemon. Both of the latter need a typed confirmation that names what cannot be seen. Format:
proc_pid_mountinfo(5).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from remote.disk.syscalls import Unsupported
from remote.protocol.artifacts import PROOF_KERNEL, PROOF_LOCAL, PROOF_NAMESPACE

_KERNEL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs"})
_NAMESPACE = frozenset({"overlay"})
_LOCAL = frozenset({"nfs", "nfs4", "lustre", "ceph", "beegfs", "gpfs", "wekafs", "fuse", "fuseblk"})


@dataclass(frozen=True)
class Proof:
    """What can be known on a file system.

    :param strength: one of the ``PROOF_`` words of ``remote.protocol.artifacts``.
    :param unseen: what cannot be seen, a sentence without its point; empty for the kernel's proof.
    :param confirm: what a person must type because of that; empty for the kernel's proof.
    """

    strength: str
    unseen: str = ""
    confirm: str = ""


KERNEL = Proof(PROOF_KERNEL)
NAMESPACE = Proof(
    PROOF_NAMESPACE,
    "this is an overlay: who uses the same files from outside this container cannot be seen",
    "unseen outside this container",
)
LOCAL = Proof(
    PROOF_LOCAL,
    "this is a network or FUSE file system: who uses the same files from other machines cannot be seen",
    "unseen on other machines",
)


@dataclass(frozen=True)
class Filesystem:
    """The file system that a mount shows.

    :param kind: such as ``ext4`` or ``fuse.sshfs``.
    """

    kind: str
    readonly: bool
    proof: Proof


def parse(mountinfo: str, mount: int) -> Optional[tuple[str, bool]]:
    """Type and read-only flag of the mount with this id, None where it is not listed."""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if separator and fields[0] == str(mount) and len(fields) > 5 and len(rest) > 2:
            readonly = "ro" in fields[5].split(",") or "ro" in rest[2].split(",")
            return rest[0], readonly
    return None


def proof_of(kind: str) -> Proof:
    """What can be proven on a file system of this type.

    :raises Unsupported: for a type whose renames and inode numbers are not known to be trustworthy.
    """
    if kind in _KERNEL:
        return KERNEL
    if kind in _NAMESPACE:
        return NAMESPACE
    if kind in _LOCAL or kind.startswith("fuse."):
        return LOCAL
    raise Unsupported(f"nothing is deleted on {kind}: it is not known whether its renames and inodes can be trusted")


def filesystem(mount: int) -> Filesystem:
    """The file system of a mount of this process's namespace.

    :raises Unsupported: as ``proof_of``, and where /proc does not list the mount.
    """
    try:
        found = parse(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"), mount)
    except OSError:
        found = None
    if found is None:
        raise Unsupported("/proc does not tell which file system the workspace lies on")
    kind, readonly = found
    return Filesystem(kind, readonly, proof_of(kind))
