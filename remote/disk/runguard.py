"""Guarantee G6 for one thing that is to go: its run keeps its best, its newest complete and one resumable checkpoint.

The run is read from the disk each time that this is asked, at planning and again at the moment of the effect.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from remote.disk import retention
from remote.disk.trimming import is_training_state
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE, Checkpoint

Checkpoints = Callable[[str], Sequence[Checkpoint]]
"""The checkpoints of a run directory, read from the disk at that moment; nothing for a directory that is no run."""


def losses(checkpoints: Checkpoints, workspace: str, relative: str, level: str) -> tuple[str, ...]:
    """What a run would lose, a sentence without its point each; nothing where it keeps all that it needs.

    A run that goes as a whole, directory and all, is a person's own decision.

    :param relative: what is to go, below the workspace.  :param level: one of the ``LEVEL_`` words.
    :raises OSError: where the run cannot be read.
    """
    names = relative.split("/")
    problems: list[str] = []
    for depth in range(1, len(names)):
        run = posixpath.join(workspace, *names[:depth])
        found = checkpoints(run)
        removed = {}
        for checkpoint in found:
            if checkpoint.name == names[depth]:
                inside = names[depth + 1 :]
                partial = level == LEVEL_TRIM or (bool(inside) and is_training_state(names[-1]))
                removed[checkpoint.artifact.path] = LEVEL_TRIM if partial else LEVEL_WHOLE
        problems += retention.survives(found, removed)
    return tuple(problems)
