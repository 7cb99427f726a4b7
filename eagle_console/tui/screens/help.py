"""The help, generated from the action table."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from eagle_console import __version__
from eagle_console.tui.actions import GROUPS, Risk, actions_at
from eagle_console.tui.keymap import DEFAULT, Keymap

_KEYS_WIDTH = 12
_LABELS = (
    "Freshness: LIVE is younger than 3 s; STALE 12s was live 12 seconds ago and is dimmed; DOWN means no connection.",
    "Lists that are asked for (checkpoints, triage, trash, journal) stay LIVE for 25 s.",
    "– means unknown. Memory is in GiB, disk in GB. What is simulated or replayed says so.",
    "Lists: arrows or j and k, page up and down, home and end. tab moves between panels.",
)


class HelpScreen(ModalScreen[None]):
    """The keys of the screen below it, then those that work everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,f1,q", "close", "close", show=False)]

    def __init__(self, screen_name: str, keymap: Keymap = DEFAULT) -> None:
        super().__init__()
        self._keymap = keymap
        self._screen_name = screen_name

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog -help") as frame:
            frame.border_title = Content(f"Keys on the screen {self._screen_name}")
            frame.border_subtitle = Content("esc closes")
            yield Static(help_text(self._screen_name, self._keymap))

    def action_close(self) -> None:
        self.dismiss(None)


def help_text(screen_name: str, keymap: Keymap = DEFAULT) -> Content:
    """The actions that work on a screen by group, with their risk, and how to read the screen."""
    lines: list[Content] = []
    for group in GROUPS:
        actions = [action for action in actions_at(screen_name) if action.group == group]
        if not actions:
            continue
        lines.append(Content.styled(group, "bold $text-accent"))
        for action in actions:
            risk = f"  ({action.risk.value})" if action.risk is not Risk.NONE else ""
            lines.append(
                Content.assemble(
                    ("  " + keymap.all_keys(action).ljust(_KEYS_WIDTH), "bold"),
                    action.help,
                    (risk, "$text-warning"),
                )
            )
        lines.append(Content(""))
    lines += [Content(label) for label in _LABELS]
    lines.append(Content.styled(f"eagle-console {__version__}", "$foreground-muted"))
    return Content("\n").join(lines)
