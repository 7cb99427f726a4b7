"""What a trim takes: the files that a trainer needs to resume and a server does not. Pure.

Names: speculators writes ``optimizer_state_dict.pt`` and ``scheduler_state_dict.pt``; the Hugging Face trainer
``optimizer.pt``, ``scheduler.pt`` and a ``rng_state`` file a process.
"""

from __future__ import annotations

import re

TRAINING_STATE = re.compile(r"(?:optimizer|scheduler)(?:_state_dict)?\.pt|rng_state.*\.pth")


def is_training_state(name: str) -> bool:
    """Whether a file of this name is optimizer or scheduler state."""
    return TRAINING_STATE.fullmatch(name) is not None
