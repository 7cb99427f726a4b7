"""How long to wait before the next try to connect."""

from __future__ import annotations

import random
from collections.abc import Callable

DELAYS_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Before the first, second, ... further try; the last one repeats."""

HEALTHY_SECONDS = 60.0
"""A link that lived this long was good: the next loss starts with the shortest delay again."""


class Backoff:
    """Growing delays with jitter, so that many consoles do not come back to a restarted host in the same moment.

    :param random_share: gives the share, 0 to 1, of the delay's upper half that is used.
    """

    def __init__(self, random_share: Callable[[], float] = random.random) -> None:
        self._random_share = random_share
        self.attempt = 0

    def next_delay(self) -> float:
        """Seconds to wait now: between half of the delay and all of it."""
        delay = DELAYS_SECONDS[min(self.attempt, len(DELAYS_SECONDS) - 1)]
        self.attempt += 1
        return delay * (0.5 + 0.5 * self._random_share())

    def lived(self, seconds: float) -> None:
        """Notes how long a link lived."""
        if seconds >= HEALTHY_SECONDS:
            self.attempt = 0
