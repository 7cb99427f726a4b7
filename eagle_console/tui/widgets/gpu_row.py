"""One GPU on one line: index, memory bar, numbers in fixed columns, the last minute's utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.text import clean, fit
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.spark import spark
from remote.protocol.gpu import GPU_ERROR, GPU_LOST, GPU_OK, GPU_SILENT, Gpu

HOT_CELSIUS = 85
"""From here a temperature is marked: data-centre GPUs begin to slow down a few degrees above it."""

_UTIL, _POWER, _TEMP = 4, 5, 4
_MIN_BAR, _MIN_SPARK = 6, 5

_WORDS = {
    GPU_LOST: ("LOST", "fell off the bus or needs a reset; nothing on it is alive"),
    GPU_ERROR: ("ERROR", "cannot be read"),
    GPU_SILENT: ("SILENT", "a driver call hangs; nothing fresh has come since"),
}


@dataclass(frozen=True)
class Columns:
    """Which columns fit into a width, and how wide the flexible ones are (0: not shown)."""

    index: int
    bar: int
    memory: int
    power: bool
    temp: bool
    spark: int

    @classmethod
    def for_width(cls, width: int, gpus: Sequence[Gpu]) -> Columns:
        """The columns for rows of ``width`` cells; the sparkline goes first, then power, then temperature."""
        index = max([1, *(len(str(gpu.index)) for gpu in gpus)])
        memory = max([10, *(len(fmt.gib_of(gpu.memory_total, gpu.memory_total)) for gpu in gpus)])
        rest = width - index - 1 - (memory + 1) - (_UTIL + 1)
        power = rest - (_POWER + 1) - (_TEMP + 1) >= _MIN_BAR
        temp = rest - (_TEMP + 1) >= _MIN_BAR
        rest -= (_POWER + 1 if power else 0) + (_TEMP + 1 if temp else 0)
        wide = rest >= _MIN_BAR + _MIN_SPARK + 2
        history = min(60, (rest - 2) * 2 // 5) if wide else 0
        history = max(_MIN_SPARK, history) if wide else 0
        return cls(index, max(0, rest - (history + 1 if history else 0)), memory, power, temp, history)


def header(columns: Columns) -> Content:
    """The names of the columns, aligned with the rows."""
    cells = [
        " " * columns.index,
        fit("memory", columns.bar),
        "used/total".rjust(columns.memory),
        "util".rjust(_UTIL),
    ]
    if columns.power:
        cells.append("power".rjust(_POWER))
    if columns.temp:
        cells.append("temp".rjust(_TEMP))
    if columns.spark:
        cells.append(fit("util, 60 s" if columns.spark >= 10 else "60 s", columns.spark))
    return Content.styled(" ".join(cells), "$foreground-muted")


def gpu_row(gpu: Gpu, history: Sequence[float | None], columns: Columns, width: int, ascii: bool = False) -> Content:
    """A GPU's line. One that cannot be read says so in words instead of numbers."""
    index = str(gpu.index).rjust(columns.index)
    if gpu.state != GPU_OK:
        return _trouble(gpu, index, width)
    share = gpu.memory_used / gpu.memory_total if gpu.memory_used is not None and gpu.memory_total else None
    parts: list[Content | str | tuple[str, str]] = [
        (index, "bold"),
        " ",
        meter(share, columns.bar, "$primary", ascii),
        " ",
        fmt.gib_of(gpu.memory_used, gpu.memory_total).rjust(columns.memory),
        " ",
        fmt.percent(gpu.utilization).rjust(_UTIL),
    ]
    if columns.power:
        parts += [" ", _unit(gpu.power, "W").rjust(_POWER)]
    if columns.temp:
        hot = gpu.temperature is not None and gpu.temperature >= HOT_CELSIUS
        degrees = _unit(gpu.temperature, "C" if ascii else "°") + ("!" if hot else "")
        parts += [" ", (degrees.rjust(_TEMP), "bold $text-error" if hot else "")]
    if columns.spark:
        parts += [" ", (spark(history, columns.spark, ascii=ascii), "$success 70%")]
    return Content.assemble(*parts)


def _trouble(gpu: Gpu, index: str, width: int) -> Content:
    word, meaning = _WORDS.get(gpu.state, (clean(gpu.state, 20).upper(), ""))
    reason = "; ".join(f"{clean(problem.call, 60)}: {clean(problem.message, 200)}" for problem in gpu.problems[:2])
    text = fit(reason or meaning, max(0, width - len(index) - len(word) - 3))
    return Content.assemble((index, "bold"), " ", (word, "bold $text-error"), "  ", text)


def _unit(value: float | None, unit: str) -> str:
    return fmt.UNKNOWN if value is None else f"{value:.0f}{unit}"
