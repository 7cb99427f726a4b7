"""Plans of a deletion, their receipts, the trash and the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from remote.protocol.artifacts import Reason

INTENT = "intent"
TRASHED = "trashed"
RESTORED = "restored"
PURGING = "purging"
PURGED = "purged"
ROLLED_BACK = "rolled_back"
REFUSED = "refused"
RECEIPT_STATES = (INTENT, TRASHED, RESTORED, PURGING, PURGED, ROLLED_BACK, REFUSED)


@dataclass(frozen=True)
class PlanItem:
    """One thing that a plan would move into the trash, or that it would leave and why.

    :param allocated, exclusive: bytes on disk, and those of them that nothing else shares.
    :param refused: why it may not go, as a sentence; empty for what goes.
    :param proof: how strongly its disuse can be proven here (``remote.protocol.artifacts.PROOF_*``).
    """

    path: str
    kind: str
    level: str
    allocated: int
    exclusive: int
    files: int
    reasons: tuple[Reason, ...] = ()
    refused: str = ""
    proof: Optional[str] = None


@dataclass(frozen=True)
class Plan:
    """What would be deleted, to be confirmed by its fingerprint (operation ``plan_prune``).

    It works once, on this host and boot, until ``expires``.

    :param items: what goes.  :param stays: what was asked for, or belongs to the same run, and stays, with the reason.
    :param fingerprint: sha256 over the manifests of everything that goes, the level and the binding.
    :param confirm: what must be typed where the proof is weaker than the kernel's; empty where a yes is enough.
    :param unseen: what cannot be seen here, as a sentence, such as openers on other machines.
    """

    id: str
    items: tuple[PlanItem, ...]
    stays: tuple[PlanItem, ...]
    fingerprint: str
    machine_id: str
    boot_id: str
    created: float
    expires: float
    exclusive: int
    confirm: str = ""
    unseen: str = ""


@dataclass(frozen=True)
class Freed:
    """The three sizes of a deletion in bytes; those that were not measured are None.

    :param planned: exclusive bytes of the plan.  :param unlinked: blocks of what was really unlinked.
    :param filesystem: growth of the free space as the file system reported it.
    :param note: explains a gap between them.
    """

    planned: int
    unlinked: Optional[int] = None
    filesystem: Optional[int] = None
    note: str = ""


@dataclass(frozen=True)
class ReceiptItem:
    """What became of one item.

    :param state: one of ``RECEIPT_STATES``.  :param problem: why it was refused or failed; empty otherwise.
    """

    path: str
    state: str
    allocated: int
    kind: str = ""
    level: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Receipt:
    """The outcome of a prune, kept until it is purged (operations ``prune``, ``undo``, ``purge``).

    :param id: what ``undo`` and ``purge`` name.
    :param expires: wall seconds at which it may be purged without being asked for.
    """

    id: str
    state: str
    items: tuple[ReceiptItem, ...]
    freed: Freed
    created: float
    expires: Optional[float] = None
    who: str = ""
    why: str = ""


@dataclass(frozen=True)
class Pin:
    """Whether a person protects a path (operation ``pin``)."""

    path: str
    pinned: bool
    who: str = ""
    wall: Optional[float] = None


@dataclass(frozen=True)
class TrashList:
    """Receipts, the newest first: those whose items lie in the trash (operation ``trash``), or those that a purge has
    gone through (operation ``purge``).

    :param allocated: bytes that purging all of them would unlink.
    """

    receipts: tuple[Receipt, ...] = ()
    allocated: int = 0
    left_out: int = 0
    problem: str = ""


@dataclass(frozen=True)
class JournalEntry:
    """A line of the journal.

    :param seq: its place.  :param wall: when.  :param who: user at console and user on the host.
    :param action: such as ``prune``, ``undo``, ``purge``, ``pin``, ``stop``, ``gpus free``, ``fix draft``.
    :param text: one sentence.  :param sound: its hash continues the chain.
    """

    seq: int
    wall: float
    who: str
    action: str
    text: str
    receipt: str = ""
    paths: tuple[str, ...] = ()
    bytes: Optional[int] = None
    facts: Optional[dict[str, str]] = None
    sound: bool = True


@dataclass(frozen=True)
class Journal:
    """The last entries, the newest first (operation ``journal``).

    :param broken: the seq at which the hash chain does not hold; None while it does.
    """

    entries: tuple[JournalEntry, ...] = ()
    broken: Optional[int] = None
    problem: str = ""
