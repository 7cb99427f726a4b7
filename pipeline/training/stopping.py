"""A stop of several trainers after the same step.

speculators raises its interruption wherever a signal finds the process. With several, one then leaves a step while
another waits inside it for the gradients of both; neither gets on, and its watchdog ends them after 120 s without a
checkpoint. Here a signal only leaves a note. After every step the trainers compare their notes on the CPU, so that no
GPU is waited for, and one note interrupts all of them there.
"""

from __future__ import annotations

import signal
from typing import Any


class CommonStop:
    """Takes the place of speculators' signal handlers in this process, which it restores itself at the end of the run.

    Every process of the group has to make one at the same place.
    """

    def __init__(self) -> None:
        import torch.distributed as dist

        self._group = dist.new_group(backend="gloo")
        self._noted = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def compare(self) -> None:
        """To be called after each step by all processes.

        :raises TrainingInterruptedError: in all of them, when one was signalled; speculators saves on it.
        """
        import torch
        import torch.distributed as dist
        from speculators.train.graceful_shutdown import TrainingInterruptedError

        noted = torch.tensor([int(self._noted)])
        dist.all_reduce(noted, op=dist.ReduceOp.MAX, group=self._group)
        if noted.item():
            raise TrainingInterruptedError("stop")

    def _note(self, number: int, frame: Any) -> None:
        self._noted = True
