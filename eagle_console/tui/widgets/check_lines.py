"""Preflight checks as lines: the verdict as a word, the reason, the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from eagle_console.text import clean
from eagle_console.tui.widgets.prose import prose
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

VERDICT_WORDS = {VERDICT_OK: "ready", VERDICT_WARNING: "warning", VERDICT_BLOCKED: "BLOCKED"}
VERDICT_STYLES = {
    VERDICT_OK: "$text-success",
    VERDICT_WARNING: "bold $text-warning",
    VERDICT_BLOCKED: "bold $text-error",
}
_ORDER = (VERDICT_BLOCKED, VERDICT_WARNING)
_LABEL = 9


def check_lines(checks: Sequence[Check], width: int) -> list[Content]:
    """The checks, those that block first, each wrapped beside its verdict."""
    lines: list[Content] = []
    ordered = sorted(checks, key=lambda check: _ORDER.index(check.verdict) if check.verdict in _ORDER else len(_ORDER))
    for check in ordered:
        word = "ok" if check.verdict == VERDICT_OK else VERDICT_WORDS.get(check.verdict, clean(check.verdict, 8))
        remedy = f" {clean(check.remedy)}" if check.remedy and check.verdict != VERDICT_OK else ""
        style = VERDICT_STYLES.get(check.verdict, "")
        texts = prose(f"{clean(check.reason)}.{remedy}".replace("..", "."), max(1, width - _LABEL))
        for number, text in enumerate(texts):
            lines.append(Content.assemble((word.ljust(_LABEL) if number == 0 else " " * _LABEL, style), text))
    return lines
