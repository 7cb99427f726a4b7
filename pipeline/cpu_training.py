"""What speculators' trainer needs to run on a machine without an accelerator, alone or under torchrun with gloo.

Version 0.9.0 moves the model to an integer device index, asks the accelerator module for its device, and takes the
collective backend from the accelerator. These five points get the CPU's answer; nothing else of the trainer changes.
"""

from __future__ import annotations

import os
from typing import Any


def install() -> None:
    """Replaces the five points in this process. To be called before the trainer is made."""
    import torch
    from speculators.train import checkpointer, cli, distributed, trainer

    set_up = trainer.Trainer.setup_trainer

    def setup_trainer(self: Any) -> None:
        self.device_type = "cpu"
        set_up(self)

    trainer.get_local_rank = lambda: torch.device("cpu")
    checkpointer.get_current_device = lambda: "cpu"
    torch.accelerator.synchronize = lambda *arguments, **options: None
    trainer.Trainer.setup_trainer = setup_trainer
    distributed.maybe_setup_distributed = cli.maybe_setup_distributed = _setup_distributed


def _setup_distributed(sp_size: int = 1) -> None:
    """As speculators' own, with gloo for the accelerator's backend."""
    import torch.distributed as dist
    from speculators.train import distributed

    distributed._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    distributed._is_distributed = "LOCAL_RANK" in os.environ
    if distributed._is_distributed:
        dist.init_process_group("gloo")
        distributed._rank, distributed._world_size = dist.get_rank(), dist.get_world_size()
        distributed._init_sp_process_groups(distributed._rank, distributed._world_size, sp_size)
