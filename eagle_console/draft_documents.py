"""The JSON documents of ``validate``, described in docs/json.md."""

from __future__ import annotations

from eagle_console.documents import Document
from remote.protocol.codec import to_wire
from remote.protocol.validation import LEVEL_ERROR, LEVEL_NOTE, LEVEL_WARNING, DraftFix, DraftValidation

_LEVELS = (LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTE)


def validation(host: str | None, value: DraftValidation) -> Document:
    """A draft and what the rules say about it. ``host`` is None for this machine."""
    levels = [finding.level for finding in value.findings]
    verdict = next((level for level in _LEVELS[:2] if level in levels), "ok")
    return {
        "host": host,
        "verdict": verdict,
        "counts": {level: levels.count(level) for level in _VERDICTS},
        **_wire(value),
    }


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

