"""Slow or stuck? What holds a start up, in a sentence, and what this release of vLLM offers against it. Pure.

The options and the releases that have them are read from vLLM's sources, 0.6.0 to 0.33.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from remote.protocol.progress import RankShard
from remote.watch import vllm_wording as wording
from remote.watch.history import PastStart

LEAST_SILENCE = 30.0
"""Seconds without any sign that are normal in every start (measured: 30 at the start, 19 between its processes)."""

SLOWER = 0.6
"""A disk that gives less than this share of what it gave before is worth a word."""

LATE = 1.5
"""A phase that takes so many times as long as ever is worth a word."""

BEHIND = 2
"""A rank that is so many files behind the foremost is one slow rank."""

_GIB = float(2**30)
_SLOW_RATE = 1.0 * _GIB  # below it, storage and access pattern are the limit; memory gives ten times as much
_LEAST_RATE = 5e6  # slower than any storage: what little is read then is not what the start waits for
_EVICTED = 1.1  # more read from storage than there is in the checkpoint


@dataclass(frozen=True)
class Situation:
    """What is known of a start that is not ready.

    :param phase: the running one, ``in_phase`` for how many seconds.
    :param longest: the longest that its span ever took, None without history.
    :param rate: bytes a second from storage now; ``usual`` in the past on this file system.
    :param size, read: bytes of the checkpoint, and what was read from storage so far.
    :param memory: bytes of RAM that the host could give.
    :param still: seconds in which no counter and no line moved; ``silence`` is the longest of the past.
    """

    phase: str
    in_phase: float
    version: str = ""
    filesystem: str = ""
    longest: Optional[float] = None
    rate: Optional[float] = None
    usual: Optional[float] = None
    size: Optional[float] = None
    read: Optional[float] = None
    memory: Optional[float] = None
    ranks: tuple[RankShard, ...] = ()
    still: float = 0.0
    silence: float = 0.0


def stalled_after(silence: float) -> float:
    """Seconds without any sign after which a start is called stalled: twice the longest silence of the past."""
    return 2 * max(silence, LEAST_SILENCE)


def sentence(now: Situation) -> str:
    """What holds the start up and what helps; empty where nothing does."""
    if now.still > stalled_after(now.silence):
        return (
            f"Stalled: no line, no byte read and no processor time for {now.still:.0f} s "
            f"(the longest silence so far was {max(now.silence, LEAST_SILENCE):.0f} s)."
        )
    if now.phase in (wording.WEIGHTS, wording.DRAFT):
        return _evicted(now) or _slow_rank(now) or _disk(now)
    late = now.longest is not None and now.in_phase > LATE * now.longest
    if now.phase == wording.COMPILE and (late or now.longest is None):
        since = f"{now.in_phase:.0f} s" + (f", the longest before was {now.longest:.0f} s" if now.longest else "")
        return f"Compiling for {since}. Keep VLLM_CACHE_ROOT on a disk with room: the next start then loads the result."
    if now.phase in (wording.CAPTURE, wording.WARM_UP) and late:
        return (
            f"Capturing CUDA graphs for {now.in_phase:.0f} s, the longest before was {now.longest:.0f} s. "
            "Fewer sizes (cudagraph_capture_sizes) or enforce_eager start faster and serve slower."
        )
    return ""


def usual_rate(past: Sequence[PastStart], filesystem: str) -> Optional[float]:
    """Bytes a second that cold loads from this file system had, the middle one; None without any."""
    rates = sorted(
        start.size / start.seconds["weights"]
        for start in past
        if start.size and start.seconds.get("weights") and start.key.filesystem == filesystem and not start.warm
    )
    return rates[len(rates) // 2] if rates else None


def remedy(version: str, filesystem: str) -> str:
    """How this release reads faster from slow storage; empty for a release that has nothing."""
    has = _release(version)
    if has is None:
        return ""
    ways = []
    if has >= (0, 18):
        ways.append("--safetensors-load-strategy prefetch (while it fits into RAM)")
    elif has >= (0, 10, 2) and filesystem.endswith(("nfs", "nfs4", "lustre")):
        ways.append("--safetensors-load-strategy eager")
    if has >= (0, 10, 2):
        ways.append("multi-threaded loading (--model-loader-extra-config with enable_multithread_load)")
    if has >= (0, 30):
        ways.append("vllm preload with --load-format ipc_cache for the next starts")
    elif has >= (0, 6, 6) and not ways:
        ways.append("--load-format runai_streamer")
    return "; ".join(ways)


def _evicted(now: Situation) -> str:
    if not now.size or now.memory is None or now.memory >= now.size:
        return ""
    if now.read is None or now.read < _EVICTED * now.size:
        return ""
    return (
        f"Page cache too small: {now.read / _GIB:.0f} GiB were read for a checkpoint of {now.size / _GIB:.0f} GiB, "
        f"since {now.memory / _GIB:.0f} GiB of RAM cannot keep it; every rank reads the same pages again. "
        "Free RAM, or use a loader that reads each byte once (sharded_state, fastsafetensors, instanttensor)."
    )


def _slow_rank(now: Situation) -> str:
    if len(now.ranks) < 2:
        return ""
    ordered = sorted(now.ranks, key=lambda rank: rank.place)
    last, first = ordered[0], ordered[-1]
    if first.place - last.place < BEHIND or ordered[1].place - last.place < BEHIND:
        return ""
    return f"One slow rank: process {last.pid} is in file {last.place} of {last.total}, the others in {first.place}."


def _disk(now: Situation) -> str:
    if now.rate is None or now.rate < _LEAST_RATE:
        return ""
    words = f"Disk-bound at {now.rate / 1e9:.2f} GB/s"
    if now.usual and now.rate < SLOWER * now.usual:
        words += f"; this file system gave {now.usual / 1e9:.2f} GB/s before"
    elif now.rate >= _SLOW_RATE:
        return ""
    helps = remedy(now.version, now.filesystem)
    return f"{words}. Faster: {helps}." if helps else f"{words}."


def _release(version: str) -> Optional[tuple[int, ...]]:
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else None
