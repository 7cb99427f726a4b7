"""A history in block characters of one colour: Textual's Sparkline colours every bar, at 20 times the bytes."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.:-=+*#"
_GAP = " "


def spark(samples: Sequence[float | None], width: int, top: float = 100.0, ascii: bool = False) -> str:
    """The last ``width`` samples, the newest at the right, scaled so that ``top`` is a full cell.

    An unknown sample is a gap, not a zero.
    """
    if width <= 0:
        return ""
    levels = _ASCII if ascii else _BLOCKS
    shown = samples[-width:]
    text = "".join(_GAP if sample is None else levels[_level(sample, top, len(levels))] for sample in shown)
    return text.rjust(width)


def _level(sample: float, top: float, levels: int) -> int:
    return max(0, min(levels - 1, int(sample / top * levels)))
