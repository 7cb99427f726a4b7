"""When a start will be ready: a range, from earlier starts and from how fast this one goes. Pure.

Every earlier start is a witness: it says how long what is left took then. For the weights the newest starts count most,
whatever the model, by their time for each byte; for the other spans those with the most alike key, and among them the
newest and those whose passed spans took as long. The word on the weights is blended with the rate that this start
shows: the more is read, the more the rate counts, and a witness that is far from it (another storage tier) loses its
say. One more witness, who has seen many hosts and knows none, keeps the range honest. The answer is the weighted median
of all, and the range that holds the truth in about 85 of 100 starts.

The constants were chosen on 22 real starts and on synthetic ones of other storage tiers, with everything varied at
once; the errors change little around them (``remote.watch.backtest``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Optional

from remote.protocol.progress import Eta
from remote.watch.history import SPANS, PastStart, StartKey, likeness
from remote.watch.pace import Pace, Reading, pace
from remote.watch.spans import Begun

HALF_LIFE = 1.25
"""Starts after which a witness counts half: caches, neighbours and settings change from day to day."""

LIKE_SPREAD = 0.08
"""Starts of the same settings pass the same span within about 8 % of each other; a wider difference tells of others."""

WEIGHTS_SPREAD = 0.3
"""Of the logarithm of the weights' time between starts on one storage."""

SPAN_SPREAD = 0.25
"""Of the logarithm of every other span's time between like starts."""

PACE_SPREAD = 0.22
"""Of the logarithm of the time that the rate predicts, when everything is read at it; wider the less is read."""

TAILS = 3.0
"""A witness whose distance from what is seen, squared and in spreads, is this has lost half of its say, and three
quarters of its word on the weights."""

STRANGER = 0.1
"""What the witness who knows no host counts, against the newest start of the same key."""

STRANGER_SPREAD = 1.0
"""Its spread: a factor of 2.7 either way."""

RANGE = 0.93
"""The quantile that ends the range, and its counterpart that begins it."""

UNLIKE_STORAGE = 0.3
"""What a start counts for the weights of a model on another file system."""

OTHER_TIER = 0.3
"""What a start from another storage tier keeps of its say on the other spans. The compiler and the capture read little:
their seconds do not follow the storage, and on a new tier the last start alone would be all that is asked. It keeps not
all of it, for what slows the weights down (a busy host, other settings) often slows the rest down too."""

MAX_PARTS = 12
"""Witnesses that are asked, the weightiest ones: the others change nothing that could be seen."""

_STRANGER_RATE = 0.5 * 2**30  # bytes a second: from 0.06 on busy network storage to 7 in memory
_STRANGER_START = 50.0  # seconds of imports and set-up, measured 46 to 104
# What follows the weights, in terms of what came before them: 0.9 on one GPU, 1 to 6 times on four.
_STRANGER_TAIL = (0.4, 1.5, 0.5, 0.1)  # load end, compile, capture, server

_LEAST = 0.2  # seconds: the resolution of a log that is looked at four times a second
_NORMAL = NormalDist()
_ROOT_HALF = math.sqrt(0.5)
_WEIGHTS = SPANS.index("weights")


@dataclass(frozen=True)
class Seen:
    """A start as far as it has come, ``at`` seconds after its begin.

    :param spans: what has begun. The first one begins at 0 where the start was seen from its begin.
    :param size: bytes of the checkpoint, None where unknown.
    :param reading: how the weights come in.
    """

    key: StartKey
    at: float
    spans: tuple[Begun, ...] = ()
    size: Optional[float] = None
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class _Part:
    """A part of a mixture: a logarithmic normal distribution of the seconds that are left."""

    weight: float
    median: float
    spread: float

    def below(self, logarithm: float) -> float:
        return 0.5 + 0.5 * math.erf((logarithm - math.log(self.median)) / self.spread * _ROOT_HALF)


def estimate(seen: Seen, past: Sequence[PastStart]) -> Eta:
    """When the start will be ready, in seconds from now.

    :param past: earlier starts, oldest first.
    """
    current = SPANS.index(seen.spans[-1].name) if seen.spans else 0
    elapsed = max(0.0, seen.at - seen.spans[-1].start) if seen.spans else seen.at
    speed = pace(seen.reading, elapsed) if current == _WEIGHTS else None
    parts = _others(seen, past, current, elapsed, _weights_seen(seen, speed, elapsed))
    if current <= _WEIGHTS:
        parts = [_sum(one, other) for one in _weights(seen, past, elapsed, speed) for other in parts]
    low, middle, high = (_quantile(parts, share) for share in (1 - RANGE, 0.5, RANGE))
    rated = speed is not None and speed.speed is not None
    return Eta(seconds=middle, low=low, high=high, source=_source(seen.key, past, rated, current))


def advance(share: float, at: float, eta: Optional[Eta]) -> float:
    """The share of the whole start for its bar, given the share shown before: it only grows and stays below 1."""
    if eta is None or at <= 0:
        return share
    return max(share, min(at / (at + max(eta.seconds, _LEAST)), 0.99))


def _weights(seen: Seen, past: Sequence[PastStart], elapsed: float, speed: Optional[Pace]) -> list[_Part]:
    """What is left of the weights: newer starts count more, of whatever model, by their time for each byte."""
    parts = []
    for age, start in enumerate(reversed(past)):
        weight = 0.5 ** (age / HALF_LIFE) * (1.0 if start.key.filesystem == seen.key.filesystem else UNLIKE_STORAGE)
        seconds = start.seconds.get("weights", 0.0) * _scale(start, seen)
        if seconds > 0:
            parts.append(_weights_part(weight, seconds, WEIGHTS_SPREAD, seen.reading, elapsed, speed))
    unknown = seen.size / _STRANGER_RATE if seen.size else 2.0 * _start(seen)
    weight = STRANGER if parts else 1.0
    return _heaviest([*parts, _weights_part(weight, unknown, STRANGER_SPREAD, seen.reading, elapsed, speed)])


def _weights_seen(seen: Seen, speed: Optional[Pace], elapsed: float) -> Optional[float]:
    """How long the weights took, or will take at the rate so far."""
    for span, after in zip(seen.spans, seen.spans[1:]):
        if span.name == "weights":
            return max(after.start - span.start, _LEAST)
    return elapsed + (1 - speed.share) / speed.speed if speed is not None and speed.speed else None


def _others(
    seen: Seen, past: Sequence[PastStart], current: int, elapsed: float, weights: Optional[float]
) -> list[_Part]:
    """What is left of the other spans: newer starts count more, alike ones first."""
    parts = []
    alike = [likeness(start.key, seen.key) for start in past]
    for place, start in enumerate(past):
        age = sum(newer >= alike[place] for newer in alike[place + 1 :])
        weight = 0.5 ** (age / HALF_LIFE) * alike[place] * _passed_alike(start, seen)
        then = start.seconds.get("weights", 0.0) * _scale(start, seen)
        if weights is not None and then > 0:
            distance = math.log(weights / then) / WEIGHTS_SPREAD
            weight *= OTHER_TIER + (1 - OTHER_TIER) / (1 + distance * distance / TAILS)
        seconds = [start.seconds.get(name, 0.0) for name in SPANS]
        parts.append(_others_part(weight, seconds, SPAN_SPREAD, current, elapsed))
    begin = _start(seen)
    unknown = (begin, 0.0, *(share * begin for share in _STRANGER_TAIL))
    weight = STRANGER if parts else 1.0
    return _heaviest([*parts, _others_part(weight, unknown, STRANGER_SPREAD, current, elapsed)])


def _scale(start: PastStart, seen: Seen) -> float:
    """How many times the bytes of an earlier start there are now."""
    return seen.size / start.size if seen.size and start.size else 1.0


def _start(seen: Seen) -> float:
    """How long the start took until its weights, or takes where nothing is known."""
    return seen.spans[1].start if len(seen.spans) > 1 else max(_STRANGER_START, seen.at)


def _others_part(weight: float, seconds: Sequence[float], spread: float, current: int, elapsed: float) -> _Part:
    left, variance = 0.0, 0.0
    for place in range(current, len(SPANS)):
        if place == _WEIGHTS:
            continue
        own, own_spread = max(seconds[place], _LEAST), spread
        if place == current:
            own, own_spread, lasts = _outlived(own, spread, elapsed)
            weight *= lasts
        left += own
        variance += (own * own_spread) ** 2
    return _Part(weight, max(left, _LEAST), _bounded(math.sqrt(variance) / left))


def _weights_part(
    weight: float, seconds: float, spread: float, reading: Reading, elapsed: float, speed: Optional[Pace]
) -> _Part:
    if speed is None:
        return _Part(weight, seconds, spread)
    left, spread, fits = _weights_left(seconds, spread, reading, elapsed, speed)
    return _Part(weight * fits, left, _bounded(spread))


def _sum(one: _Part, other: _Part) -> _Part:
    """Both one after the other."""
    left = one.median + other.median
    return _Part(
        one.weight * other.weight,
        left,
        _bounded(math.hypot(one.median * one.spread, other.median * other.spread) / left),
    )


def _bounded(spread: float) -> float:
    return min(max(spread, 0.02), 1.2)


def _heaviest(parts: Sequence[_Part]) -> list[_Part]:
    return sorted(parts, key=lambda part: part.weight, reverse=True)[:MAX_PARTS]


def _passed_alike(start: PastStart, seen: Seen) -> float:
    """How much the spans that are over, but for the weights, took as long as in an earlier start."""
    share = 1.0
    for span, after in zip(seen.spans, seen.spans[1:]):
        if span.name == "weights":
            continue
        took, then = max(after.start - span.start, 1.0), max(start.seconds.get(span.name, 0.0), 1.0)
        distance = math.log(took / then) / LIKE_SPREAD
        share /= 1 + distance * distance / 3
    return share


def _weights_left(
    then: float, spread: float, reading: Reading, elapsed: float, speed: Pace
) -> tuple[float, float, float]:
    """Seconds of the weights that are left, their spread, and how well the witness fits the rate."""
    expected = max(then * (1 - speed.share), _LEAST)
    if speed.speed is None:
        upcoming = then if reading.next_share is None else then * max(reading.next_share, 0.01)
        fits = _NORMAL.cdf(math.log(max(upcoming, _LEAST) / max(elapsed, _LEAST)) / 0.5)
        return max(then - elapsed, expected * (1 - (reading.next_share or 0.0)), 1.0), spread, fits + 1e-6
    shown = max((1 - speed.share) / speed.speed, _LEAST)
    shown_spread = PACE_SPREAD / math.sqrt(max(speed.share, 0.01))
    distance = math.log(shown / expected)
    fits = 1 / (1 + distance * distance / (spread**2 + shown_spread**2) / TAILS) ** 2
    told, rated = fits / spread**2, 1 / shown_spread**2
    blended = math.exp((told * math.log(expected) + rated * math.log(shown)) / (told + rated))
    return blended, 1 / math.sqrt(told + rated), fits


def _outlived(seconds: float, spread: float, elapsed: float) -> tuple[float, float, float]:
    """The same for a span that has lasted ``elapsed`` seconds: a witness that it has outlived says little."""
    if elapsed < 0.001:
        return seconds, spread, 1.0
    lasts = 1 - _NORMAL.cdf(math.log(elapsed / seconds) / spread)
    if lasts < 1e-9:
        return 0.3 * spread * elapsed, 1.0, 1e-9
    median = seconds * math.exp(spread * _NORMAL.inv_cdf(min(1 - lasts / 2, 1 - 1e-12)))
    left = max(median - elapsed, 0.01 * seconds)
    return left, min(1.0, spread * seconds / max(left, 1.0)) if seconds > elapsed else 1.0, lasts


def _quantile(parts: Sequence[_Part], share: float) -> float:
    """The seconds below which the mixture has ``share`` of its weight."""
    total = sum(part.weight for part in parts)
    low = min(math.log(part.median) - 4 * part.spread for part in parts)
    high = max(math.log(part.median) + 4 * part.spread for part in parts)
    for _ in range(30):
        middle = (low + high) / 2
        if sum(part.weight * part.below(middle) for part in parts) < share * total:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _source(key: StartKey, past: Sequence[PastStart], rated: bool, current: int) -> str:
    """Where the range comes from, in words."""
    own = sum(likeness(start.key, key) == 1.0 for start in past)
    if own:
        source = f"from {own} earlier start{'s' if own > 1 else ''}"
        return f"{source} and the read rate" if rated else source
    if past:
        others = f"{len(past)} start{'s' if len(past) > 1 else ''} of other settings"
        return f"first start of these settings: from the read rate and {others}" if rated else f"from {others}"
    if rated:
        return "first start on this host: from the read rate only"
    until = " until the weights are read" if current <= _WEIGHTS else ""
    return f"first start on this host: a guess{until}"
