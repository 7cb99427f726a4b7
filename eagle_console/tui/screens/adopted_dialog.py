"""Stopping what is not ours: irreversible, so that it needs the name typed. No key and no click does it alone."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from eagle_console import format as fmt
from eagle_console.text import clean
from remote.protocol.adopted import KIND_TRAINING, Adopted


class StopAdoptedDialog(ModalScreen[str | None]):
    """Dismissed with the name, once exactly it was typed and entered; with None where the person keeps it running."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "keep", "cancel", show=False)]

    def __init__(self, record: Adopted, seconds: float | None) -> None:
        super().__init__()
        self._record = record
        self._seconds = seconds

    def compose(self) -> ComposeResult:
        record = self._record
        name = clean(record.name, 60)
        who = clean(record.user, 40) if record.user else "Somebody"
        lost = "training" if record.kind == KIND_TRAINING else "loading and serving"
        lines = [
            Content.assemble(
                (name, "bold"), f"  {clean(record.kind, 30)}, pid {record.main.pid if record.main else fmt.UNKNOWN}"
            ),
            Content.styled(clean(record.command_line or "", 300), "$foreground-muted"),
            Content(""),
            Content.assemble(
                f"eagle-console did not start this: {who} did. ",
                ("Stopping it loses ", "bold $text-error"),
                f"{fmt.duration_in_words(self._seconds)} of {lost}, and nothing here can start it again.",
            ),
            Content(""),
            Content.assemble("Type its name, ", (name, "bold"), ", to stop it:"),
        ]
        with VerticalScroll(classes="dialog -irreversible", can_focus=False) as frame:
            frame.border_title = Content("STOP WHAT IS NOT OURS")
            yield Static(Content("\n").join(lines), classes="dialog-text")
            yield Input(compact=True, id="answer", select_on_focus=False)
            with Horizontal(classes="dialog-answers"):
                yield Button("Keep it running (esc)", id="keep", compact=True)
                yield Button("Stop it (enter)", id="accept", compact=True, disabled=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_keep(self) -> None:
        self.dismiss(None)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#accept", Button).disabled = event.value != self._record.name

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == self._record.name:
            self.dismiss(event.value)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        typed = self.query_one(Input).value
        self.dismiss(typed if event.button.id == "accept" and typed == self._record.name else None)
