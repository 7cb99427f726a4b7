"""A value that is slow to get: read at most once at a time, and shared by everyone who asks meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Optional, TypeVar

T = TypeVar("T")


class Refreshed(Generic[T]):
    """The value of ``read``, not older than ``max_age`` seconds where waiting for it is allowed.

    A read that hangs (a dead mount) holds those who wait for it and no one else.
    """

    def __init__(self, read: Callable[[], T], max_age: float) -> None:
        self._read = read
        self._max_age = max_age
        self._changed = threading.Condition()
        self._value: Optional[T] = None
        self._error: Optional[Exception] = None
        self._taken = float("-inf")
        self._wanted = 0  # reads that were asked for
        self._finished = 0
        self._running = False

    def get(self) -> T:
        """The value, waiting for it as long as it takes.

        :raises Exception: what ``read`` raised.
        """
        value = self._wait(None)
        assert value is not None
        return value

    def latest(self, timeout: float) -> Optional[T]:
        """The value; after ``timeout`` seconds or an error the last one that there was, if any."""
        try:
            return self._wait(timeout)
        except Exception:
            return self._value

    def expire(self) -> None:
        """Makes the next ``get`` read anew, since the world was changed."""
        with self._changed:
            self._taken = float("-inf")
            self._wanted = self._finished + (2 if self._running else 1)

    def _wait(self, timeout: Optional[float]) -> Optional[T]:
        with self._changed:
            if time.monotonic() - self._taken > self._max_age:
                self._wanted = max(self._wanted, self._finished + 1)
            wanted = self._wanted
            self._start()
            self._changed.wait_for(lambda: self._finished >= wanted, timeout)
            if self._error is not None:
                raise self._error
            return self._value

    def _start(self) -> None:
        if not self._running and self._finished < self._wanted:
            self._running = True
            threading.Thread(target=self._work, name="refresh", daemon=True).start()

    def _work(self) -> None:
        started = time.monotonic()
        value: Optional[T] = None
        error: Optional[Exception] = None
        try:
            value = self._read()
        except Exception as caught:
            error = caught
        with self._changed:
            self._running = False
            self._finished += 1
            self._error = error
            if error is None:
                self._value, self._taken = value, started
            self._start()
            self._changed.notify_all()
