"""A question on the way in: a passphrase, a password, a code. The answer goes to the link and is kept nowhere else."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from eagle_console.link.questions import Prompt


class PromptDialog(ModalScreen[str | None]):
    """Dismissed with the answer, possibly empty, or with None where the person cancels.

    What a host writes is shown as plain text below a line that says whose words they are; the title is always ours.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel", show=False)]

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self.prompt = prompt

    def compose(self) -> ComposeResult:
        lines = [Content.styled(note, "$foreground-muted") for note in self.prompt.notes]
        with VerticalScroll(classes="dialog -prompt", can_focus=False) as frame:
            frame.border_title = Content(self.prompt.title.upper())
            yield Static(Content("\n").join([*lines, Content.styled(self.prompt.label, "bold")]), classes="dialog-text")
            yield Input(password=not self.prompt.echo, compact=True, id="answer", select_on_focus=False)
            with Horizontal(classes="dialog-answers"):
                yield Button("Answer (enter)", id="accept", compact=True)
                yield Button("Cancel (esc)", id="cancel", compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_cancel(self) -> None:
        self._leave(None)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._leave(event.value)

    @on(Button.Pressed)
    def _button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self._leave(self.query_one(Input).value if event.button.id == "accept" else None)

    def _leave(self, answer: str | None) -> None:
        self.query_one(Input).clear()
        self.dismiss(answer)
