from __future__ import annotations

import os
import time

import pytest

os.environ["TEXTUAL_ANIMATIONS"] = "none"  # read once, when textual is imported
os.environ["TZ"] = "UTC"
os.environ.pop("NO_COLOR", None)
time.tzset()


@pytest.fixture(autouse=True)
def _still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blinking cursor would make a picture depend on the moment."""
    monkeypatch.setattr("textual.widgets._input.Input._toggle_cursor", lambda self: None)
