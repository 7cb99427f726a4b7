"""What is remembered of something that goes: its metrics and how it was made, as texts for the journal.

Secrets that stand in a recorded command line are hidden.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Optional

from remote.adopt.recognising import without_secrets
from remote.disk.ground import Ground
from remote.disk.syscalls import READ_FILE, Unsupported
from remote.protocol.errors import RequestError

NAMES = ("val_metrics.json", "training_state.json", "trainer_state.json", "train_command.txt", "run.yaml")
"""Of the thing itself; the last two also of the run that it belongs to."""

_RUN_NAMES = NAMES[-2:]
_FILE_BYTES = 4096
_ALL_BYTES = 48 * 1024


def facts(ground: Ground, paths: Sequence[str]) -> dict[str, str]:
    """The texts by their paths below the workspace, each cut to 4 KiB, as far as there is room for them.

    :param paths: what goes, below the workspace.
    """
    found: dict[str, str] = {}
    room = _ALL_BYTES
    for path in paths:
        folder = path.rpartition("/")[0]
        wanted = [f"{path}/{name}" for name in NAMES] + [f"{folder}/{name}" for name in _RUN_NAMES if folder]
        for name in wanted:
            text = None if name in found or room < _FILE_BYTES else _read(ground, name)
            if text is not None:
                found[name] = text
                room -= len(text)
    return found


def _read(ground: Ground, path: str) -> Optional[str]:
    with contextlib.suppress(OSError, Unsupported, RequestError):
        descriptor = ground.calls.open_beneath(ground.descriptor, path, READ_FILE)
        try:
            data = os.pread(descriptor, _FILE_BYTES, 0)
        finally:
            os.close(descriptor)
        return "\n".join(without_secrets(line) for line in data.decode("utf-8", "replace").splitlines())
    return None
