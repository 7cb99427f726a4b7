"""What lies below a workspace and beside it: artifacts, the checkpoints of runs, and the verdicts over them.

A verdict is made on the host by a pure function over facts (``remote.disk.triage``); the console shows it and asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

KEEP = "keep"  # a guard protects it
REVIEW = "review"  # nothing protects it, nothing speaks against it: a person decides
STALE = "stale"  # superseded or orphaned, by evidence
TORN = "torn"  # incomplete, and nobody is writing it
UNKNOWN = "unknown"  # not recognised, or its use cannot be proven
VERDICTS = (KEEP, REVIEW, STALE, TORN, UNKNOWN)

LEVEL_TRIM = "trim"  # optimizer and scheduler state go; the checkpoint stays servable
LEVEL_WHOLE = "whole"

PROOF_KERNEL = "kernel"  # a lease: nobody on this kernel has the file open or mapped
PROOF_NAMESPACE = "namespace"  # overlay: nobody in this mount namespace, by lease and /proc
PROOF_LOCAL = "local"  # network and FUSE file systems: no local process


@dataclass(frozen=True)
class Size:
    """Bytes of an artifact.

    :param allocated: of its blocks, each inode counted once.
    :param apparent: sum of the file sizes.
    :param exclusive: allocated bytes that no link outside the artifact shares: what its removal can free at most.
    """

    allocated: int
    apparent: int
    exclusive: int
    files: int


@dataclass(frozen=True)
class Reason:
    """One line of evidence behind a verdict.

    :param text: a sentence, such as ``superseded: epoch 7 predicted acceptance 1.62 against 1.41``.
    :param rule: the guard or finding's stable name, such as ``newest_two``; guards protect, findings accuse.
    :param guard: it protects.
    :param source: where it was read, such as a path or ``kernel lease``.
    :param observed: wall seconds.
    """

    rule: str
    text: str
    guard: bool = False
    source: str = ""
    observed: Optional[float] = None


@dataclass(frozen=True)
class Verdict:
    """What may become of one artifact.

    :param reclaim: bytes that could be freed, by level; a level that makes no sense for it is absent.
    :param rebuild_minutes: what it would cost to make again; None where that is not known.
    :param rebuild_basis: how that is known.
    :param proof: how strongly its disuse is proven, one of the ``PROOF_`` words; None where it was not looked at.
    """

    word: str
    reasons: tuple[Reason, ...] = ()
    reclaim: Optional[dict[str, int]] = None
    rebuild_minutes: Optional[float] = None
    rebuild_basis: str = ""
    proof: Optional[str] = None


@dataclass(frozen=True)
class Artifact:
    """One thing on the disk that a person would name.

    :param path: absolute.
    :param kind: a stable word such as ``checkpoint``, ``run``, ``hidden_states``, ``prepared``, ``responses``,
        ``draft``, ``log``, ``verifier``, ``compile_cache``, ``hub_cache``, ``core_dump``, ``shm``, ``unknown``.
    :param run: the path of the run directory that it belongs to; empty for one that stands alone.
    :param movable: it lies in the workspace and can be pruned at all.
    :param pinned: a person protected it.
    """

    path: str
    kind: str
    size: Size
    verdict: Verdict
    run: str = ""
    modified: Optional[float] = None
    movable: bool = True
    pinned: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a training run: a row of the checkpoints table.

    :param name: the directory's name.
    :param epoch, step: from its own records; None where they do not say.
    :param state: ``full``, ``trimmed``, ``torn``, ``interrupted`` or ``writing``.
    :param resumable: the trainer can go on from it.  :param servable: config and weights are complete.
    :param validation_loss, predicted_acceptance: of its own validation; absent does not mean bad.
    :param best: the run's own pointer names it.  :param newest: the newest complete one.
    :param possibly_best: why it may be the best although the pointer does not name it; empty where it cannot be.
    :param holes: bytes of its weights that were never written, or that a sparse copy left out.
    :param strangers: files in it that no trainer writes.
    :param problem: what is missing or cut in it, a sentence without its point; empty where nothing is.
    """

    name: str
    artifact: Artifact
    state: str
    epoch: Optional[int] = None
    step: Optional[int] = None
    resumable: bool = False
    servable: bool = False
    validation_loss: Optional[float] = None
    predicted_acceptance: Optional[float] = None
    best: bool = False
    newest: bool = False
    possibly_best: str = ""
    holes: int = 0
    strangers: int = 0
    problem: str = ""


@dataclass(frozen=True)
class CheckpointList:
    """The checkpoints of one run directory, the newest first (operation ``checkpoints``)."""

    run: str
    checkpoints: tuple[Checkpoint, ...] = ()
    observed: Optional[float] = None
    problem: str = ""


@dataclass(frozen=True)
class Triage:
    """Everything recognised, with verdicts (operation ``triage``).

    :param hidden: deleted files that processes still hold open, as findings: nothing can be pruned there.
    :param left_out: artifacts that did not fit into a frame, the smallest first.
    """

    workspace: str
    artifacts: tuple[Artifact, ...] = ()
    hidden: tuple[Artifact, ...] = ()
    observed: Optional[float] = None
    left_out: int = 0
    problem: str = ""
