"""The end of a receipt: irreversible, so that its size has to be typed."""

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
from eagle_console.disk_words import below, in_trash
from eagle_console.text import clean
from remote.protocol.trash import TRASHED, Receipt

_SHOWN = 8
"""Items that are listed by name."""


class PurgeDialog(ModalScreen[bool]):
    """Dismissed with True once exactly the size was typed and entered."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "keep", "cancel", show=False)]

    def __init__(self, receipt: Receipt, workspace: str | None) -> None:
        super().__init__()
        self._receipt = receipt
        self._workspace = workspace
        self._wanted = fmt.gb(in_trash(receipt))

    def compose(self) -> ComposeResult:
        items = [item for item in self._receipt.items if item.state == TRASHED]
        lines = [Content.styled(clean(self._receipt.id, 60), "bold")]
        for item in items[:_SHOWN]:
            path = clean(below(item.path, self._workspace), 200)
            lines.append(Content.styled(f"  {fmt.gb(item.allocated):>8}  {path}", "$foreground-muted"))
        if len(items) > _SHOWN:
            lines.append(Content.styled(f"            and {len(items) - _SHOWN} more", "$foreground-muted"))
        lines += [
            Content(""),
            Content.assemble(
                ("Nothing brings this back. ", "bold $text-error"), "What it really frees is measured and said."
            ),
            Content.assemble("Type its size, ", (self._wanted, "bold"), ", to purge it:"),
        ]
        with VerticalScroll(classes="dialog -irreversible", can_focus=False) as frame:
            frame.border_title = Content("PURGE FOR GOOD")
            yield Static(Content("\n").join(lines), classes="dialog-text")
            yield Input(compact=True, id="answer", select_on_focus=False)
            with Horizontal(classes="dialog-answers"):
                yield Button("Keep it (esc)", id="keep", compact=True)
                yield Button("Purge it (enter)", id="accept", compact=True, disabled=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def action_keep(self) -> None:
        self.dismiss(False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one("#accept", Button).disabled = event.value.strip() != self._wanted

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip() == self._wanted:
            self.dismiss(True)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        typed = self.query_one(Input).value.strip()
        self.dismiss(event.button.id == "accept" and typed == self._wanted)
