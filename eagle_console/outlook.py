"""When a load will be ready, in words: the range, and where it comes from."""

from __future__ import annotations

from eagle_console import format as fmt
from eagle_console.text import clean
from remote.protocol.progress import Eta, Progress


def range_words(eta: Eta, word: str = "ready") -> str:
    """Such as ``ready in 8:10 to 12:05``; one time where both ends read the same. A run is ``done``, not ready."""
    low, high = fmt.duration(eta.low), fmt.duration(eta.high)
    return f"{word} in {low}" if low == high else f"{word} in {low} to {high}"


def outlook_words(progress: Progress, word: str = "ready") -> str:
    """The range with its source, and what holds the work up; empty where nothing is known. A task is ``done``."""
    words = []
    if progress.eta is not None and not progress.ready:
        source = clean(progress.eta.source, 200)
        when = range_words(progress.eta, word)
        words.append(f"{when} ({source})" if source else when)
    if progress.bottleneck and not progress.ready:
        words.append(clean(progress.bottleneck, 400))
    return "  ".join(words)
