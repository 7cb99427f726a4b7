"""How much a server may hold at once, so that its memory cannot run out whatever is asked of it.

vLLM prefills in chunks: of all requests that wait, a step takes ``max_num_batched_tokens`` tokens at most, and a longer
prompt goes on in the next step. So 2000 prompts of 503,000 tokens together are 62 steps of 8192 tokens, never one. What
is left to bound is what lives outside the GPU: the hidden states of finished requests, which wait in the host's memory
until they are on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

GPU_BATCHED_TOKENS = 8192
CPU_BATCHED_TOKENS = 2048
HOST_SHARE = 0.25
"""Share of the host's memory that hidden states on their way to the disk may take."""

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class Budget:
    """Bounds of one extraction server and its client.

    :param batched_tokens: tokens of one prefill step (``--max-num-batched-tokens``).
    :param sequences: requests that the server works on at once (``--max-num-seqs``).
    :param concurrency: requests that the client has open.
    :param length: longest sequence, tokens.
    :param host_bytes: hidden states that can be in the host's memory at once.
    """

    batched_tokens: int
    sequences: int
    concurrency: int
    length: int
    host_bytes: int

    @property
    def open_tokens(self) -> int:
        """Tokens of all open requests at their longest."""
        return self.concurrency * self.length

    @property
    def words(self) -> str:
        """One sentence for people."""
        return (
            f"at most {self.batched_tokens:,} tokens are prefilled in one step, although {self.concurrency} requests of"
            f" {self.length:,} tokens ({self.open_tokens:,}) may be open; their hidden states take at most"
            f" {self.host_bytes / 1e9:.1f} GB of the host's memory"
        )


def bytes_per_token(hidden_size: int, states: int, dtype: Optional[str]) -> int:
    """Size of one token's hidden states, as they are saved.

    :param states: how many layers are saved: the draft's three and the last.
    :param dtype: of the server; what is not known counts as two bytes.
    """
    return states * hidden_size * _DTYPE_BYTES.get(dtype or "", 2)


def extraction(
    token_bytes: int,
    length: int,
    concurrency: int,
    host_memory: Optional[int],
    cpu_only: bool,
    batched_tokens: Optional[int] = None,
) -> Budget:
    """The bounds of an extraction server.

    :param token_bytes: of one token's hidden states.
    :param length: longest sequence, tokens.
    :param concurrency: requests that the user wants to be open; less where the host's memory is too small for them.
    :param host_memory: bytes of the host, None when unknown.
    :param batched_tokens: the user's own bound for one step.
    """
    if batched_tokens is None:
        batched_tokens = CPU_BATCHED_TOKENS if cpu_only else GPU_BATCHED_TOKENS
    fits = concurrency if host_memory is None else int(host_memory * HOST_SHARE) // max(1, token_bytes * length)
    concurrency = max(1, min(concurrency, fits))
    sequences = min(concurrency, batched_tokens)
    return Budget(batched_tokens, sequences, concurrency, length, concurrency * length * token_bytes)


def prefill_steps(prompts: list[int], batched_tokens: int) -> list[int]:
    """The tokens of each prefill step for prompts of these lengths, as chunked prefill takes them in their order."""
    steps: list[int] = []
    room = 0
    for length in prompts:
        left = length
        while left:
            if not room:
                steps.append(0)
                room = batched_tokens
            taken = min(left, room)
            steps[-1] += taken
            room -= taken
            left -= taken
    return steps


def request_seconds(max_tokens: int, tokens_per_second: Optional[float], wait_seconds: float = 60.0) -> float:
    """How long a request may take before it counts as lost: four times what its tokens need at the measured rate.

    :param max_tokens: that it may generate.
    :param tokens_per_second: of one sequence, as measured; None before the first has finished, then one is assumed.
    """
    return wait_seconds + 4.0 * max_tokens / max(0.25, tokens_per_second if tokens_per_second is not None else 4.0)
