"""The bottom line: the keys that work here, from the action table."""

from __future__ import annotations

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.tui.actions import EVERYWHERE, GO, Action, actions_at
from eagle_console.tui.keymap import DEFAULT, Keymap
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines

_KEY = "bold $text-accent"
_WIDE = 120
"""Cells from which on there is room for the keys and for what keeps running."""


class KeyFooter(Lines):
    """The keys of one screen. Help and quit stay when there is no room for all."""

    def __init__(self, screen_name: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._screen_name = screen_name

    def show(self, view: View) -> None:
        """Paints the line for a picture."""
        running = len(view.state.live_jobs())
        self.set_lines([footer_line(self._screen_name, running, self.size.width, view.keymap)])


def footer_line(screen_name: str, running: int, width: int, keymap: Keymap = DEFAULT) -> Content:
    """The line for a width: screens, then what can be done here, then help and quit.

    Where that does not fit, the screens lose their names, then the last keys go. What keeps running goes before them on
    a wide screen; on a narrow one it comes last.
    """
    shown = [action for action in actions_at(screen_name) if action.footer]
    last = [action for action in shown if action.id in ("help", "quit")]
    end = Content("  ").join(_key(action, screen_name, keymap) for action in last)
    screens = [action for action in shown if action.action.startswith("app.go(") and EVERYWHERE in action.where]
    here = [action for action in shown if action not in screens and action not in last]
    first = Content("  ").join(_key(action, screen_name, keymap) for action in screens)
    pieces = [_key(action, screen_name, keymap) for action in here]
    keeps = f" ({fmt.plural(running, 'job')} {'keeps' if running == 1 else 'keep'} running)" if running else ""
    told = Content.styled(keeps, "$foreground-muted")
    if width >= _WIDE:
        end = Content.assemble(end, told)
    if first.cell_length + sum(piece.cell_length + 2 for piece in pieces) + end.cell_length + 3 > width:
        first = Content.assemble(Content(" ").join(Content.styled(keymap.key(a), _KEY) for a in screens), " screens")
    line = Content.assemble(" ", first, "  ")
    for piece in pieces:
        longer = Content.assemble(line, piece, "  ")
        if longer.cell_length + end.cell_length > width:
            break
        line = longer
    line = Content.assemble(line, end)
    fits = width < _WIDE and line.cell_length + told.cell_length <= width
    return Content.assemble(line, told) if fits else line


def _key(action: Action, screen_name: str, keymap: Keymap) -> Content:
    here = action.group == GO and action.id == screen_name
    return Content.assemble((keymap.key(action), _KEY), " ", (action.label, "bold underline" if here else ""))
