"""The JSON documents of ``validate``, described in docs/json.md."""

from __future__ import annotations

from eagle_console.documents import Document
from remote.protocol.codec import to_wire
from remote.protocol.validation import LEVEL_ERROR, LEVEL_NOTE, LEVEL_WARNING, DraftFix, DraftValidation

_LEVELS = (LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTE)


def validation(host: str | None, value: DraftValidation) -> Document:
    """A draft and what the rules say about it. ``host`` is None for this machine."""
    levels = [finding.level for finding in value.findings]
    verdict = next((level for level in (LEVEL_ERROR, LEVEL_WARNING) if level in levels), "ok")
    counts = {level: levels.count(level) for level in _LEVELS}
    fields: Document = to_wire(value)
    return {"host": host, "verdict": verdict, "counts": counts, **fields}


def fix(host: str | None, value: DraftFix) -> Document:
    """A corrected copy, with the validation of it."""
    return {
        "host": host,
        "source": value.source,
        "target": value.target,
        "changes": list(value.changes),
        "copied": value.copied,
        "validation": validation(host, value.validation),
    }
