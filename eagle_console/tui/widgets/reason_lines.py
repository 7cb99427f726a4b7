"""Why something goes or stays, as lines: each reason with its source and time."""

from __future__ import annotations

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.disk_words import below, proof_words, reason_words, reasons_in_order, rebuild_words
from eagle_console.text import clean
from eagle_console.tui.widgets.prose import field
from remote.protocol import artifacts
from remote.protocol.artifacts import KEEP, REVIEW, STALE, TORN, Artifact, Reason

VERDICT_STYLES = {
    KEEP: "$text-success",
    REVIEW: "",
    STALE: "bold $text-warning",
    TORN: "bold $text-error",
    artifacts.UNKNOWN: "$foreground-muted",
}
_LABEL = 10


def reason_lines(artifact: Artifact, width: int, workspace: str | None = None) -> list[Content]:
    """What speaks for and against it, then what it would cost to make again and how its disuse is proven."""
    lines: list[Content] = []
    for reason in reasons_in_order(artifact.verdict):
        lines += field("protects" if reason.guard else "because", reason_text(reason, workspace), width, label=_LABEL)
    lines += field("rebuild", clean(rebuild_words(artifact.verdict)), width, label=_LABEL)
    lines += field("unused", clean(proof_words(artifact.verdict)), width, label=_LABEL)
    if not artifact.movable:
        lines += field("stays", "it lies outside the workspace: nothing is pruned there", width, label=_LABEL)
    return lines


def reason_text(reason: Reason, workspace: str | None) -> str:
    """The sentence, with where it was read, unless it says that itself, and when."""
    words = reason_words(reason)
    seen = fmt.clock(reason.observed, seconds=True) if reason.observed is not None else ""
    source = "" if reason.source in words else below(reason.source, workspace)
    facts = ", ".join(clean(fact, 200) for fact in (source, seen) if fact)
    return f"{clean(words)}  ({facts})" if facts else clean(words)
