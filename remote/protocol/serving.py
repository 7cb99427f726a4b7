"""A vLLM server at work, from its ``/metrics``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Serving:
    """What a server does. Sums are over all its engines; a metric that this release does not have is None.

    Rates are differences of two readings; None until there are two, and after a counter began anew.

    :param running, waiting: requests.
    :param kv_cache: used share of the KV cache, 0 to 1; of several engines the fullest.
    :param prompt_tokens, generated_tokens, preemptions: since the server's start.
    :param prompt_rate, generation_rate: tokens a second.
    :param drafts, draft_tokens, accepted_tokens: of speculative decoding since the server's start.
    :param accepted_by_position: accepted tokens by draft position since the server's start.
    :param acceptance_length: 1 + accepted tokens per draft; ``acceptance_rate`` is accepted per drafted token, both
        over ``window`` seconds, or since the server's start where ``window`` is None.
    :param position_rates: accepted tokens per draft by position, over the same time.
    """

    running: Optional[float] = None
    waiting: Optional[float] = None
    kv_cache: Optional[float] = None
    prompt_tokens: Optional[float] = None
    generated_tokens: Optional[float] = None
    preemptions: Optional[float] = None
    prompt_rate: Optional[float] = None
    generation_rate: Optional[float] = None
    drafts: Optional[float] = None
    draft_tokens: Optional[float] = None
    accepted_tokens: Optional[float] = None
    accepted_by_position: tuple[float, ...] = ()
    acceptance_length: Optional[float] = None
    acceptance_rate: Optional[float] = None
    position_rates: tuple[float, ...] = ()
    window: Optional[float] = None
    model: Optional[str] = None
