"""The one dialog of a prune: exactly what goes, what stays and why.

Reversible where the kernel proves that nobody uses it: a thin frame, the focus on Cancel. Where the proof is weaker it
looks costly, names what cannot be seen and wants a name typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from eagle_console import format as fmt
from eagle_console.disk_words import below, reason_words
from eagle_console.text import clean, fit, shorten_path
from eagle_console.tui.widgets.prose import prose
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE, Reason
from remote.protocol.trash import Plan, PlanItem

_SIZE = 8
_AROUND, _TYPING = 6, 2
"""Lines that the frame with the answers takes beside the summary, and those of something to type."""
_SHARE = 0.94
"""Of the terminal's height that a dialog may take."""


@dataclass(frozen=True)
class Choice:
    """What a person chose: to go (with what was typed), another level, or neither."""

    go: bool = False
    typed: str = ""
    level: str = ""


class PruneDialog(ModalScreen[Choice]):
    """Dismissed with a ``Choice``. ``t`` asks for the plan of the other level."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "cancel", "cancel", show=False),
        Binding("t", "other_level", "other level", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
    ]

    def __init__(self, title: str, plan: Plan, level: str, workspace: str | None) -> None:
        super().__init__()
        self._title = title
        self._plan = plan
        self._level = level
        self._workspace = workspace

    def compose(self) -> ComposeResult:
        grade = "costly" if self._plan.confirm else "reversible"
        with Vertical(classes=f"dialog -plan -{grade}") as frame:
            frame.border_title = Content(clean(self._title, 70))
            with VerticalScroll(id="plan-text", can_focus=False):
                yield Static(id="plan-lines")
            yield Static(self._summary(), id="plan-summary")
            if self._plan.confirm and self._plan.items:
                yield Input(compact=True, id="answer", select_on_focus=False)
            with Horizontal(classes="dialog-answers"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self._accept_words(), id="accept", compact=True, disabled=bool(self._obstacle("")))
                yield Static(self._obstacle(""), id="plan-obstacle", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        fields = self.query(Input)
        (fields.first() if fields else self.query_one("#cancel")).focus()

    def on_resize(self) -> None:
        # The list takes what the lines below it leave: the answers are always in sight.
        text = self.query_one("#plan-text", VerticalScroll)
        width = max(30, text.size.width - 2)
        below = len(self._summary().wrap(max(30, text.region.width))) + _AROUND + (_TYPING if self._plan.confirm else 0)
        text.styles.max_height = max(1, int(self.app.size.height * _SHARE) - below)
        self.query_one("#plan-lines", Static).update(Content("\n").join(plan_lines(self._plan, self._workspace, width)))

    def action_cancel(self) -> None:
        self.dismiss(Choice())

    def action_other_level(self) -> None:
        self.dismiss(Choice(level=LEVEL_WHOLE if self._level == LEVEL_TRIM else LEVEL_TRIM))

    def action_scroll(self, lines: int) -> None:
        self.query_one("#plan-text", VerticalScroll).scroll_relative(y=lines, animate=False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        obstacle = self._obstacle(event.value)
        self.query_one("#accept", Button).disabled = bool(obstacle)
        self.query_one("#plan-obstacle", Static).update(obstacle)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._obstacle(event.value):
            self.dismiss(Choice(go=True, typed=event.value))

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        fields = self.query(Input)
        typed = fields.first().value if fields else ""
        go = event.button.id == "accept" and not self._obstacle(typed)
        self.dismiss(Choice(go=go, typed=typed))

    def _obstacle(self, typed: str) -> str:
        """Why it cannot be accepted; empty where it can."""
        if not self._plan.items:
            return "nothing goes"
        if self._plan.confirm and typed != self._plan.confirm:
            return f"type {clean(self._plan.confirm, 40)} first"
        return ""

    def _accept_words(self) -> str:
        return f"Move {fmt.plural(len(self._plan.items), 'item')} to the trash"

    def _summary(self) -> Content:
        size = fmt.gb(self._plan.exclusive)
        other = "only optimizer and scheduler state" if self._level == LEVEL_WHOLE else "whole checkpoints instead"
        lines = [
            Content.assemble(
                ("Reversible: ", "bold"), f"u undoes it until it is purged. Frees nothing yet; {size} reclaimable. ",
                ("" if self._plan.confirm else f"t: {other}", "$foreground-muted"),
            )
        ]  # fmt: skip
        if self._plan.confirm:
            unseen = clean(self._plan.unseen, 300) or "what other machines do with it"
            lines.append(
                Content.assemble(
                    ("That nobody uses it is not fully proven. Cannot be seen: ", "bold $text-warning"), unseen, ". ",
                    "Type ", (clean(self._plan.confirm, 60), "bold"), ":",
                )
            )  # fmt: skip
        return Content("\n").join(lines)


def plan_lines(plan: Plan, workspace: str | None, width: int) -> list[Content]:
    """All of a plan for a width: what goes with its sizes and reasons, then what stays and why."""
    lines = [Content.styled(f"Goes to the trash: {fmt.plural(len(plan.items), 'item')}", "bold")]
    if not plan.items:
        lines = [Content.styled("Nothing goes to the trash.", "bold")]
    shared = _shared_reasons(plan.items)
    if shared:
        lines += [Content.assemble("  ", line) for line in prose(f"each: {_words(shared)}", width - 2)]
    for item in plan.items:
        own = [reason for reason in item.reasons if reason.text not in {other.text for other in shared}]
        lines += _item(item, workspace, width, _words(own), item.exclusive)
    if plan.stays:
        lines += [Content(""), Content.styled(f"Stays: {fmt.plural(len(plan.stays), 'item')}", "bold")]
    for item in plan.stays:
        why = clean(item.refused.removeprefix("kept: ")) or _words(item.reasons)
        lines += _item(item, workspace, width, why, item.allocated or None)  # what stays is not always measured
    return lines


def _shared_reasons(items: Sequence[PlanItem]) -> list[Reason]:
    """What holds for all of several items in the same words: it is said once."""
    if len(items) < 2:
        return []
    texts = set.intersection(*({reason.text for reason in item.reasons} for item in items))
    return [reason for reason in items[0].reasons if reason.text in texts]


def _words(reasons: Sequence[Reason]) -> str:
    return "; ".join(clean(reason_words(reason)) for reason in reasons)


def _item(item: PlanItem, workspace: str | None, width: int, why: str, size: int | None) -> list[Content]:
    part = "trim  " if item.level == LEVEL_TRIM else ""
    names = max(12, min(28, width // 3))
    name = fit(shorten_path(clean(below(item.path, workspace)), names), names)
    start = f"  {name} {fmt.gb(size):>{_SIZE}}  {part}"
    texts: Sequence[Content] = prose(why, max(16, width - len(start))) or [Content("")]
    return [
        Content.assemble(start if number == 0 else " " * len(start), text.stylize("$foreground-muted"))
        for number, text in enumerate(texts)
    ]
