"""A vLLM server's ``/metrics``, releases 0.6 to 0.33: readings out of Prometheus text, and what two of them say. Pure.

Names that changed: the KV cache's use is ``gpu_cache_usage_perc`` up to 0.11.2 and ``kv_cache_usage_perc`` from 0.9.2
on; before speculative decoding of V1 (0.8.5) there are no counters of drafts. Every engine of a data-parallel server
has its own line: requests and tokens are added, of the KV cache the fullest counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from remote.protocol.serving import Serving

MAX_POSITIONS = 64
"""Draft positions that are read: more than any method drafts."""

MAX_LINE = 4096
"""Characters of a line; a longer one is no sample of vLLM's."""

_PREFIX = "vllm:"
_SAMPLE = re.compile(r'vllm:(?P<name>\w+)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(?P<value>\S+)')
_LABEL = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')

_SUMS = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "prompt_tokens_total": "prompt_tokens",
    "generation_tokens_total": "generated_tokens",
    "num_preemptions_total": "preemptions",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "draft_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
_KV_CACHE = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
_WANTED = frozenset((*_SUMS, *_KV_CACHE, _PER_POSITION))


@dataclass(frozen=True)
class Reading:
    """The metrics at one time. ``at`` is in seconds of a clock that only goes forward."""

    at: float
    running: Optional[float] = None
    waiting: Optional[float] = None
    kv_cache: Optional[float] = None
    prompt_tokens: Optional[float] = None
    generated_tokens: Optional[float] = None
    preemptions: Optional[float] = None
    drafts: Optional[float] = None
    draft_tokens: Optional[float] = None
    accepted_tokens: Optional[float] = None
    accepted_by_position: tuple[float, ...] = ()
    model: Optional[str] = None


def parse(text: str, at: float) -> Optional[Reading]:
    """The reading in an answer of ``/metrics``; None when nothing in it is vLLM's. Cut lines are passed over."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    caches: dict[str, float] = {}
    model: Optional[str] = None
    for name, labels, value in _samples(text):
        model = model or labels.get("model_name")
        if name in _SUMS:
            sums[_SUMS[name]] = sums.get(_SUMS[name], 0.0) + value
        elif name in _KV_CACHE:
            caches[name] = max(caches.get(name, 0.0), value)
        else:
            place = labels.get("position", "")
            if place.isdigit() and int(place) < MAX_POSITIONS:
                positions[int(place)] = positions.get(int(place), 0.0) + value
    if not sums and not caches:
        return None
    by_position = tuple(positions.get(place, 0.0) for place in range(max(positions, default=-1) + 1))
    cache = next((caches[name] for name in _KV_CACHE if name in caches), None)
    return Reading(at, kv_cache=cache, accepted_by_position=by_position, model=model, **sums)


def compare(before: Optional[Reading], now: Reading) -> Serving:
    """What the server does: rates from two readings of the same server, the rest from the later one.

    A counter that is lower than before began anew (the server was started again): then there is no rate.
    """
    seconds = now.at - before.at if before is not None else 0.0
    same = before is not None and seconds > 0 and not _began_anew(before, now)
    since = before if same else None
    window: Optional[float] = seconds if same else None
    drafts = _difference(since, now, "drafts")
    if not drafts:  # nothing was drafted meanwhile: the figures since its start are the latest there are
        since, window, drafts = None, None, now.drafts
    drafted, accepted = _difference(since, now, "draft_tokens"), _difference(since, now, "accepted_tokens")
    return Serving(
        running=now.running,
        waiting=now.waiting,
        kv_cache=now.kv_cache,
        prompt_tokens=now.prompt_tokens,
        generated_tokens=now.generated_tokens,
        preemptions=now.preemptions,
        prompt_rate=_rate(before, now, "prompt_tokens", seconds) if same else None,
        generation_rate=_rate(before, now, "generated_tokens", seconds) if same else None,
        drafts=now.drafts,
        draft_tokens=now.draft_tokens,
        accepted_tokens=now.accepted_tokens,
        accepted_by_position=now.accepted_by_position,
        acceptance_length=1 + accepted / drafts if drafts and accepted is not None else None,
        acceptance_rate=accepted / drafted if drafted and accepted is not None else None,
        position_rates=_position_rates(since, now, drafts),
        window=window,
        model=now.model,
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if not line.startswith(_PREFIX) or len(line) > MAX_LINE:
            continue
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in _WANTED:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = {label["name"]: label["value"] for label in _LABEL.finditer(match["labels"] or "")}
            yield match["name"], labels, value


def _began_anew(before: Reading, now: Reading) -> bool:
    counters = ("prompt_tokens", "generated_tokens", "drafts", "draft_tokens", "accepted_tokens")
    pairs = [(getattr(before, name), getattr(now, name)) for name in counters]
    return any(earlier is not None and later is not None and later < earlier for earlier, later in pairs)


def _difference(since: Optional[Reading], now: Reading, name: str) -> Optional[float]:
    """How much a counter grew, since the server's start where there is no earlier reading."""
    later: Optional[float] = getattr(now, name)
    if later is None or since is None:
        return later
    earlier: Optional[float] = getattr(since, name)
    return later - (earlier or 0.0)


def _rate(before: Optional[Reading], now: Reading, name: str, seconds: float) -> Optional[float]:
    if before is None or getattr(before, name) is None:
        return None
    grown = _difference(before, now, name)
    return None if grown is None else grown / seconds


def _position_rates(since: Optional[Reading], now: Reading, drafts: Optional[float]) -> tuple[float, ...]:
    if not drafts:
        return ()
    earlier = since.accepted_by_position if since is not None else ()
    padded = (*earlier, *([0.0] * len(now.accepted_by_position)))
    return tuple((later - first) / drafts for later, first in zip(now.accepted_by_position, padded))
