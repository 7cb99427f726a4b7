"""What makes a training step on a GPU faster or possible, and computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def fused_adamw(build: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """speculators' choice of optimizers, with AdamW's update as one kernel in place of one for each operation.

    :param build: ``build_optimizers`` of the trainer.
    """
    import torch

    def build_optimizers(model: Any, config: Any) -> list[Any]:
        optimizers = build(model, config)
        for optimizer in optimizers:
            if isinstance(optimizer, torch.optim.AdamW):
                for group in (optimizer.defaults, *optimizer.param_groups):
                    group["fused"], group["foreach"] = True, False
        return optimizers

    return build_optimizers


def settle_loss_tiles(vocabulary: int) -> None:
    """Chooses the tiles that the fused loss may try beforehand, as its own callback does at the first launch.

    The forward and backward kernels of speculators 0.9.0 share one list of tiles and a callback that shortens it;
    Dynamo of torch 2.11 fails while it traces that ("ListVariable is already tracked for mutation").

    :param vocabulary: the draft's, which is the width of the rows.
    """
    from speculators.losses import fused

    for kernel in (fused.loss_forward_kernel, fused.loss_backward_kernel):
        kernel.configs = list(fused._prune_oversized_tiles(list(kernel.configs), {"n_cols": vocabulary}))
        kernel.early_config_prune = None


def on_device(batches: Iterator[Any], device: Any) -> Iterator[Any]:
    """The batches with their tensors on the device, each copied while the one before it is computed.

    Memory that a batch gives back is written again only by a later copy, and each copy waits for all computation that
    was asked for before it. So the allocator need not watch the tensors, which costs an event query for every
    allocation of the step.
    """
    import torch

    copies = torch.cuda.Stream(device)

    def copied(batch: Any) -> Any:
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            return {
                name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
                for name, value in batch.items()
            }

    ahead: Any = None
    for batch in batches:
        here = ahead
        if here is not None:
            torch.cuda.current_stream().wait_stream(copies)
        ahead = copied(batch)
        if here is not None:
            yield here
    if ahead is not None:
        torch.cuda.current_stream().wait_stream(copies)
        yield ahead
