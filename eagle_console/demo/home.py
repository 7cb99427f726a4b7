"""Where the embedded host keeps its files on the user's machine."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "EAGLE_CONSOLE_DEMO_HOME"


def demo_home() -> Path:
    """The folder of the embedded host: ``EAGLE_CONSOLE_DEMO_HOME``, else one below the XDG state directory.

    Its name has an underscore: vLLM takes a model path with ``eagle-`` in it for an EAGLE-1 draft.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.startswith("/"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "eagle_console" / "demo"
