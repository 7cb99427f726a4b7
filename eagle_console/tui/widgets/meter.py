"""One-line bars of one colour: pure text, so that a repaint costs no more than the cells that changed."""

from __future__ import annotations

from textual.content import Content

_FULL, _HALF, _TRACK = "━", "╸", "─"
_TRACK_STYLE = "$foreground 25%"


def meter(share: float | None, width: int, style: str = "$primary", ascii: bool = False) -> Content:
    """A bar of ``width`` cells filled to ``share`` (0 to 1). An unknown share has no bar, only its empty track.

    A share above 0 shows at least a sliver and one below 1 leaves one: full means full. The track is a thinner line, so
    that the bar reads without colours too.
    """
    if width <= 0:
        return Content("")
    if ascii:
        inner = max(0, width - 2)
        filled = _filled(share, inner)
        return Content.styled("[" + "#" * filled + "." * (inner - filled) + "]", style)
    full, half = divmod(_filled(share, width * 2), 2)
    bar = _FULL * full + _HALF * half
    return Content.assemble((bar, style), (_TRACK * (width - len(bar)), _TRACK_STYLE))


def _filled(share: float | None, whole: int) -> int:
    if share is None or whole <= 0:
        return 0
    if share >= 1:
        return whole
    return max(1 if share > 0 else 0, min(round(share * whole), whole - 1))
