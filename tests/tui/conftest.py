from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

os.environ["TEXTUAL_ANIMATIONS"] = "none"  # read once, when textual is imported
os.environ["TZ"] = "UTC"
os.environ.pop("NO_COLOR", None)
time.tzset()


@pytest.fixture(autouse=True)
def _own_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of journals go there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blinking cursor would make a picture depend on the moment."""
    monkeypatch.setattr("textual.widgets._input.Input._toggle_cursor", lambda self: None)
