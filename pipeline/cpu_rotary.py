"""Rotary positions of vLLM's CPU build for tensors with a dimension for the heads, as latent attention (MLA) has them.

The CPU operation ``rotary_embedding`` of vLLM 0.32 takes the last dimension but one for the tokens. Given ``[tokens,
heads, size]`` it rotates the first few pairs of token and head by wrong positions and leaves the others as they are;
given a view of a wider tensor it writes beside it. Given ``[tokens, heads * size]`` it is right, and so it gets that.
Like the connector this file is copied to a folder of the job; vLLM loads it as a plugin in each of its processes.
"""

from __future__ import annotations

from typing import Any, Optional


def install() -> None:
    """Puts the flattening before the operation. Calling it again changes nothing."""
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    operation = RotaryEmbedding.forward_cpu
    if operation.__module__ == __name__:
        return

    def forward_cpu(self: Any, positions: Any, query: Any, key: Any = None) -> tuple[Any, Optional[Any]]:
        if query.dim() < 3:
            return operation(self, positions, query, key)  # type: ignore[no-any-return]
        flat = [None if given is None else given.flatten(-2).contiguous() for given in (query, key)]
        turned_query, turned_key = operation(self, positions, *flat)
        return turned_query.view(query.shape), None if key is None else turned_key.view(key.shape)

    RotaryEmbedding.forward_cpu = forward_cpu
