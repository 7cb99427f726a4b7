"""How far a transfer is, how fast it is, and how long it will take: pure."""

from __future__ import annotations

from collections import deque

from eagle_console import format as fmt

RATE_SECONDS = 30.0
"""The rate, and so the time left, is that of the last half minute."""

STEP_PERCENT = 10
"""Where no terminal shows a moving line, there is a line each so many percent."""


class Progress:
    """Bytes of a transfer by their origin.

    :param total: bytes of all files.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.kept = 0
        """Bytes of an earlier try that were checked and kept."""
        self.fetched = 0
        """Bytes that came over the link, holes included."""
        self._marks: deque[tuple[float, int]] = deque()
        self._step = 0

    @property
    def done(self) -> int:
        return self.kept + self.fetched

    def mark(self, now: float) -> None:
        """Notes how far it is at a time, for the rate."""
        self._marks.append((now, self.fetched))
        while len(self._marks) > 2 and now - self._marks[1][0] >= RATE_SECONDS:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes a second in the last ``RATE_SECONDS``; None before there is anything to go by."""
        if len(self._marks) < 2:
            return None
        (begin, before), (end, after) = self._marks[0], self._marks[-1]
        return (after - before) / (end - begin) if end > begin else None

    def words(self) -> str:
        """``1.2 GB of 2.3 GB, 52%, 88 MB/s, 12 s left (by the rate of the last 30 s)``."""
        share = fmt.percent(100.0 * self.done / self.total if self.total else 100.0)
        words = f"{fmt.gb(self.done)} of {fmt.gb(self.total)}, {share}"
        if not self.rate:
            return words
        left = fmt.duration_in_words((self.total - self.done) / self.rate + 0.5)
        seconds = min(RATE_SECONDS, self._marks[-1][0] - self._marks[0][0])
        return f"{words}, {fmt.gb(self.rate)}/s, {left} left (by the rate of the last {seconds:.0f} s)"

    def passed_step(self) -> bool:
        """Whether another ``STEP_PERCENT`` was passed since the last call."""
        step = 100 * self.done // self.total // STEP_PERCENT if self.total else 0
        passed, self._step = step > self._step, max(step, self._step)
        return passed
