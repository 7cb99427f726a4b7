"""Where the stage ``setup`` says which ML environment it has made or adopted: a file of the workspace."""

from __future__ import annotations

import json
import os
from typing import Optional

RECORD = os.path.join(".eagle_console", "environment.json")


def record(workspace: str) -> str:
    """The file's path."""
    return os.path.join(workspace, RECORD)


def read(workspace: str) -> Optional[str]:
    """The environment's interpreter; None where none has been made, or it is gone."""
    try:
        with open(record(workspace), encoding="utf-8") as file:
            python = json.load(file)["python"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return python if isinstance(python, str) and os.access(python, os.X_OK) else None
