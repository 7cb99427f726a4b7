"""A training run in lines: where it is, how fast, and how good, with their histories."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.text import clean, shorten_path
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.spark import spark
from remote.protocol.training import Training

_SPARK = 16


def training_lines(training: Training, share: float | None, width: int, height: int, ascii: bool) -> list[Content]:
    """The run in at most ``height`` lines, the most telling first.

    :param share: how much of it is done, 0 to 1; None while the total is not known.
    """
    lines = [place(training)]
    if training.problem:
        lines += prose(clean(training.problem), width, "bold $text-error")
    bar = [meter(share, width, "$primary", ascii)] if share is not None else []
    quality = [*_history("loss", training.loss, training.losses, width, ascii), *_accuracy(training, width, ascii)]
    if len(lines) + len(bar) + len(quality) <= height:
        lines += bar
    return [*lines, *quality, *rest_lines(training, width)][: max(0, height)]


def place(training: Training) -> Content:
    """Phase, epoch, step and rate in one line."""
    words = []
    if training.epoch is not None:
        words.append(f"epoch {training.epoch}" + (f"/{training.epochs}" if training.epochs is not None else ""))
    if training.step is not None:
        about = "" if training.total_exact else "~"
        total = f"/{about}{fmt.count(training.total_steps)}" if training.total_steps is not None else ""
        words.append(f"step {fmt.count(training.step)}{total}")
    rate = fmt.UNKNOWN if training.steps_per_second is None else f"{training.steps_per_second:.3g}"
    words.append(f"{rate} steps/s")
    return Content.assemble((clean(training.phase, 20), "bold"), "  ", "  ".join(words))


def _history(name: str, value: float | None, history: Sequence[float | None], width: int, ascii: bool) -> list[Content]:
    if value is None and not any(sample is not None for sample in history):
        return []
    known = [sample for sample in history if sample is not None]
    room = max(0, min(_SPARK, width - 20))
    bars = spark(history, room, max(known, default=1.0) or 1.0, ascii).strip()
    shown = fmt.UNKNOWN if value is None else f"{value:.4g}"
    return [Content.assemble((f"{name} ", "$foreground-muted"), (shown, "bold"), f"  {bars}")]


def _accuracy(training: Training, width: int, ascii: bool) -> list[Content]:
    if not training.accuracy:
        return []
    places = " ".join(f"{value:.2f}" for value in training.accuracy)
    room = max(0, min(_SPARK, width - 40))
    bars = spark(training.accuracies, room, 1.0, ascii).strip()
    predicts = "" if training.predicted_length is None else f"  predicts {training.predicted_length:.2f}"
    return [Content.assemble(("acc ", "$foreground-muted"), (places, "bold"), f"  {bars}{predicts}")]


def rest_lines(training: Training, width: int) -> list[Content]:
    """Speed in tokens, data wait, learning rate, validation, and the last checkpoint."""
    words = []
    if training.tokens_per_second is not None:
        words.append(f"{fmt.count(round(training.tokens_per_second))} tokens/s")
    if training.validation_loss is not None:
        words.append(f"validation loss {training.validation_loss:.4g}")
    if training.learning_rate is not None:
        words.append(f"lr {training.learning_rate:.3g}")
    if training.data_wait is not None:
        words.append(f"GPU waits for data {fmt.percent(100 * training.data_wait)}")
    lines = prose("  ".join(words), width, "$foreground-muted")
    if training.checkpoint is not None:
        step = "" if training.checkpoint_step is None else f" at step {fmt.count(training.checkpoint_step)}"
        path = shorten_path(clean(training.checkpoint), max(8, width - 18 - len(step)))
        lines.append(Content.styled(f"last checkpoint {path}{step}", "$foreground-muted"))
    return lines
