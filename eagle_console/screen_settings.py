"""How the screen looks and rings: the configuration's table ``[screen]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BELL, OSC9, OFF = "bell", "osc9", "off"
NOTIFY = (BELL, OSC9, OFF)
"""What a load that is ready and a run that ends do beside the note on the screen: the terminal's bell, a desktop
notification (OSC 9, which iTerm2, WezTerm, Windows Terminal, kitty and others show), or nothing."""


@dataclass(frozen=True)
class ScreenSettings:
    """What a person chose for the screen.

    :param theme: one of Textual's; None for its default.
    :param ascii: only ASCII signs.
    :param notify: one of ``NOTIFY``.
    :param keys: own keys by the action's name, as written: ``stop = "X"``, several with commas.
    """

    theme: str | None = None
    ascii: bool = False
    notify: str = BELL
    keys: Mapping[str, str] = field(default_factory=dict)
