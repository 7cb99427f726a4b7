"""The curves of a training run: its loss, and what it predicts the draft to be accepted."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.content import Content

from eagle_console.state import Timed
from eagle_console.text import clean
from eagle_console.tui.plot import Curve, Scale, plot, scale
from eagle_console.tui.view import View
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from remote.protocol import series as names
from remote.protocol.series import Series, TrainingSeries

STALE_COURSE = 15.0
"""Seconds; the course is asked for every few seconds."""

_POSITION_STYLES = ("$text-primary", "$text-success", "$text-warning", "$text-accent", "$text-secondary")


class CurvePanel(Panel):
    """A panel over the course of a run, which its screen sets."""

    STALE_AFTER = STALE_COURSE
    TITLE: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.course: Timed[TrainingSeries] | None = None
        self.trouble = ""

    def source(self, view: View) -> Timed[Any] | None:
        return self.course

    def heading(self, view: View) -> str:
        return self.TITLE

    def body(self, view: View, width: int, height: int) -> list[Content]:
        if self.course is None:
            return prose(clean(self.trouble), width, "$text-warning")
        course = self.course.value
        if course.problem and not course.series:
            return prose(clean(course.problem), width, "$foreground-muted")
        return self.curves(course, {item.name: item for item in course.series}, width, height, view.ascii)

    def curves(
        self, course: TrainingSeries, found: dict[str, Series], width: int, height: int, ascii: bool
    ) -> list[Content]:
        """The lines for a size."""
        raise NotImplementedError


class LossPanel(CurvePanel):
    """Loss of training and of validation, on one scale."""

    TITLE = "Loss"

    def curves(
        self, course: TrainingSeries, found: dict[str, Series], width: int, height: int, ascii: bool
    ) -> list[Content]:
        shown = [
            curve(found[name], sign, style)
            for name, sign, style in (
                (names.LOSS, "t", "$text-primary"),
                (names.VALIDATION_LOSS, "v", "bold $text-warning"),
            )
            if name in found
        ]
        head = _legend(
            [("t", "training", found.get(names.LOSS)), ("v", "validation", found.get(names.VALIDATION_LOSS))]
        )
        upward = scale(shown)
        words = Content.assemble(head, ("  log scale", "$foreground-muted")) if upward and upward.logarithmic else head
        return [
            words.truncate(width, ellipsis=True),
            *plot(shown, width, height - 1, _steps(course), None, course.epochs, ascii),
        ]


class AcceptancePanel(CurvePanel):
    """The conditional accuracy at each position of the draft, and the acceptance length that follows from it."""

    TITLE = "Acceptance"

    def curves(
        self, course: TrainingSeries, found: dict[str, Series], width: int, height: int, ascii: bool
    ) -> list[Content]:
        positions = [found[name] for number in range(9) if (name := f"{names.ACCURACY}{number}") in found]
        shown = [
            curve(item, str(number), _POSITION_STYLES[number % len(_POSITION_STYLES)])
            for number, item in enumerate(positions)
        ]
        words = [Content.styled("predicts ", "$foreground-muted"), _last(found.get(names.PREDICTED), 2)]
        if names.VALIDATION_PREDICTED in found and width >= 48:
            words += [Content.styled("  validation ", "$foreground-muted"), _last(found[names.VALIDATION_PREDICTED], 2)]
        if positions:
            words.append(Content.styled("  acc", "$foreground-muted"))
            words += [Content.assemble(" ", _last(item, 2)) for item in positions]
        top = Scale(0.0, 1.0)
        lines = plot(shown, width, height - 1, _steps(course), top, course.epochs, ascii)
        return [Content.assemble(*words).truncate(width, ellipsis=True), *lines]


def curve(item: Series, sign: str, style: str) -> Curve:
    """A series as a curve over the steps."""
    return Curve(tuple(zip(item.steps, item.values)), sign, style)


def _steps(course: TrainingSeries) -> Scale | None:
    """From the beginning of the run: both plots have the same x axis."""
    last = max((item.steps[-1] for item in course.series if item.steps), default=0)
    return Scale(0.0, float(last)) if last else None


def _legend(entries: list[tuple[str, str, Series | None]]) -> Content:
    parts = [
        Content.assemble((f"{sign} ", "bold"), (f"{name} ", "$foreground-muted"), _last(item))
        for sign, name, item in entries
        if item is not None
    ]
    return Content("  ").join(parts)


def _last(item: Series | None, decimals: int | None = None) -> Content:
    """The newest value of a series."""
    value = item.values[-1] if item is not None and item.values else None
    if value is None:
        return Content.styled("–", "bold")
    return Content.styled(f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}", "bold")
