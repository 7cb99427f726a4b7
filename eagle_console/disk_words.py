"""How the disk's records read: what the commands and the screens both say about artifacts, plans and receipts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eagle_console.format import UNKNOWN, duration_in_words, gb, plural
from remote.protocol import artifacts
from remote.protocol.artifacts import (
    KEEP,
    LEVEL_TRIM,
    LEVEL_WHOLE,
    PROOF_KERNEL,
    PROOF_LOCAL,
    PROOF_NAMESPACE,
    REVIEW,
    STALE,
    TORN,
    Artifact,
    Checkpoint,
    Reason,
    Triage,
    Verdict,
)
from remote.protocol.errors import BAD_ARGUMENT, NOT_FOUND, RequestError
from remote.protocol.trash import PURGED, TRASHED, Freed, Receipt, TrashList

LAST = "last"
"""Names the newest receipt that can be undone."""

_ORDER = (STALE, TORN, REVIEW, artifacts.UNKNOWN, KEEP)
_PROOFS = {
    PROOF_KERNEL: "kernel lease: nobody has it open or mapped",
    PROOF_NAMESPACE: "nobody in this mount namespace has it open",
    PROOF_LOCAL: "no process of this host has it open; other hosts cannot be seen",
}


def in_order(found: Iterable[Artifact]) -> list[Artifact]:
    """Those that could go first, the largest first; those that stay last."""

    def place(artifact: Artifact) -> tuple[int, int, str]:
        word = artifact.verdict.word
        return (_ORDER.index(word) if word in _ORDER else len(_ORDER), -artifact.size.allocated, artifact.path)

    return sorted(found, key=place)


def is_ripe(artifact: Artifact) -> bool:
    """Stale or torn, and offered."""
    return artifact.verdict.word in (STALE, TORN) and is_offered(artifact)


def outermost(found: Iterable[Artifact]) -> list[Artifact]:
    """Those that lie in no other one of them: what lies in a run goes with it and counts once."""
    chosen: list[Artifact] = []
    for artifact in sorted(found, key=lambda artifact: artifact.path):
        if not (chosen and artifact.path.startswith(chosen[-1].path.rstrip("/") + "/")):
            chosen.append(artifact)
    return chosen


def total_reclaimable(found: Iterable[Artifact]) -> int:
    """Bytes that removing all of them could free; what lies in another one of them counts once."""
    return sum(reclaimable(artifact) or 0 for artifact in outermost(found))


def reclaimable(artifact: Artifact) -> int | None:
    """Bytes that its whole removal could free; None where that is not offered."""
    return (artifact.verdict.reclaim or {}).get(LEVEL_WHOLE)


def is_offered(artifact: Artifact) -> bool:
    """Whether pruning it makes sense at all. The host decides again, with every guard, when it plans and commits."""
    return artifact.movable and not artifact.pinned and artifact.verdict.word != KEEP


def reasons_in_order(verdict: Verdict) -> list[Reason]:
    """What decides first: the guards of something kept, the findings of something that could go."""
    return sorted(verdict.reasons, key=lambda reason: reason.guard != (verdict.word == KEEP))


def reason_words(reason: Reason) -> str:
    """The sentence; without ``kept:``, which the verdict beside it says."""
    return reason.text.removeprefix("kept: ")


def main_reason(verdict: Verdict) -> str:
    """The sentence that decides, and how many more there are."""
    reasons = reasons_in_order(verdict)
    if not reasons:
        return ""
    more = f"  (+{len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reason_words(reasons[0]) + more


def rebuild_words(verdict: Verdict) -> str:
    """What making it again would cost, with how that is known; empty where that is unknown or among the reasons."""
    if verdict.rebuild_minutes is None or any(reason.rule == "rebuild" for reason in verdict.reasons):
        return ""
    basis = f": {verdict.rebuild_basis}" if verdict.rebuild_basis else ""
    return f"rebuilding costs about {duration_in_words(verdict.rebuild_minutes * 60)}{basis}"


def proof_words(verdict: Verdict) -> str:
    """How strongly disuse is proven; empty where it was not looked at, or where the kernel's proof is a reason."""
    told = verdict.proof == PROOF_KERNEL and any(reason.rule == "idle" for reason in verdict.reasons)
    return _PROOFS.get(verdict.proof, verdict.proof) if verdict.proof and not told else ""


def level_words(level: str) -> str:
    """``whole``, or what a trim takes."""
    return "optimizer and scheduler state" if level == LEVEL_TRIM else level


def below(path: str, workspace: str | None) -> str:
    """A path as people say it: relative to the workspace where it lies in it."""
    if workspace and path.startswith(workspace.rstrip("/") + "/"):
        return path[len(workspace.rstrip("/")) + 1 :]
    return path


def absolute(path: str, workspace: str | None) -> str:
    """A path that a person wrote; one without a beginning is below the workspace. The host resolves nothing else."""
    cut = path.rstrip("/") or path
    return cut if cut.startswith("/") or not workspace else f"{workspace.rstrip('/')}/{cut}"


def runs(triage: Triage) -> list[str]:
    """The run directories that are known, by themselves or by their checkpoints, in the order of their names."""
    parts = (artifact for artifact in triage.artifacts if artifact.kind == "checkpoint" and artifact.run)
    return sorted({a.path for a in triage.artifacts if a.kind == "run"} | {artifact.run for artifact in parts})


def checkpoint_marks(checkpoint: Checkpoint) -> str:
    """What singles a checkpoint out: ``best newest``, and that a person pinned it."""
    marks = (("best", checkpoint.best), ("newest", checkpoint.newest), ("pinned", checkpoint.artifact.pinned))
    return " ".join(word for word, holds in marks if holds)


def number(value: float | None, decimals: int) -> str:
    """A metric; a dash where there is none, since absent does not mean bad."""
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def freed_figures(freed: Freed) -> str:
    """The three figures: what was planned, what was unlinked, and what the file system then had more."""
    growth = UNKNOWN if freed.filesystem is None else f"{'+' if freed.filesystem >= 0 else ''}{gb(freed.filesystem)}"
    figures = f"planned {gb(freed.planned)}, unlinked {gb(freed.unlinked)}, file system {growth}"
    return f"{figures} ({freed.note})" if freed.note else figures


def freed_sentence(receipt: Receipt) -> str:
    """What a receipt has freed by now: nothing before its purge, then what was measured."""
    if receipt.state == PURGED:
        measured = receipt.freed.filesystem if receipt.freed.filesystem is not None else receipt.freed.unlinked
        return f"freed {gb(measured)}: {freed_figures(receipt.freed)}"
    if receipt.state == TRASHED:
        return f"0 B freed yet, {gb(receipt.freed.planned)} reclaimable: purge frees them"
    note = f": {receipt.freed.note}" if receipt.freed.note else ""
    return f"{receipt.state.replace('_', ' ')}, 0 B freed{note}"


def in_trash(receipt: Receipt) -> int:
    """Bytes that a receipt still has in the trash."""
    return sum(item.allocated for item in receipt.items if item.state == TRASHED)


def countdown(receipt: Receipt, now: float) -> str:
    """How long it can still be undone for sure: ``6 d 3 h``, ``expired``."""
    if receipt.expires is None:
        return UNKNOWN
    return "expired" if receipt.expires <= now else duration_in_words(receipt.expires - now)


def receipt_named(trash: TrashList, word: str) -> str:
    """The receipt that a person means: its id, the beginning of one, or ``last``; a word that fits none stays as it is,
    since the host knows more receipts than its trash has.

    :raises RequestError: when the word fits several, or there is no last one.
    """
    if word == LAST:
        undoable = [receipt.id for receipt in trash.receipts if receipt.state == TRASHED]
        if not undoable:
            raise RequestError(NOT_FOUND, "there is nothing in the trash")
        return undoable[0]
    fitting = [receipt.id for receipt in trash.receipts if receipt.id.startswith(word)]
    if word in fitting or len(fitting) == 1:
        return word if word in fitting else fitting[0]
    if fitting:
        raise RequestError(BAD_ARGUMENT, f"{word} is the beginning of several receipts: {', '.join(fitting)}")
    return word


def items_of(paths: Sequence[str], workspace: str | None) -> str:
    """``output_1k``, or how many items."""
    return below(paths[0], workspace) if len(paths) == 1 else plural(len(paths), "item")
