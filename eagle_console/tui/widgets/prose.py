"""Sentences on lines of a width."""

from __future__ import annotations

from textual.content import Content


def prose(text: str, width: int, style: str = "") -> list[Content]:
    """Clean ``text`` wrapped at words; an empty text has no lines."""
    if not text or width <= 0:
        return []
    return Content.styled(text, style).wrap(width)


def field(name: str, value: str, width: int, style: str = "", label: int = 8) -> list[Content]:
    """A named value: the name in a column of ``label`` cells, the value wrapped beside it; nothing if it is empty."""
    lines = prose(value, max(1, width - label), style)
    return [
        Content.assemble((name.ljust(label) if number == 0 else " " * label, "$foreground-muted"), line)
        for number, line in enumerate(lines)
    ]
