"""Asking a service whether it is ready, without ever blocking who wants to know."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional
from urllib.parse import urlsplit

POLL_SECONDS = 1.0
READY_POLL_SECONDS = 5.0
TIMEOUT_SECONDS = 5.0
FAILURES_UNTIL_UNHEALTHY = 3  # a server that decodes a long batch may miss an answer or two


NOT_OURS = "another process than this job's answers on its port"


@dataclass(frozen=True)
class Health:
    """The latest word: ``healthy`` after an answer of 200, until several polls in a row had none.

    ``problem`` is what the last poll met, empty when it was answered with 200.
    """

    healthy: bool = False
    problem: str = "not asked yet"


class HealthPoller:
    """Polls a health URL on loopback from a thread of its own.

    :param is_ours: whether the stage's own processes listen there, None when that cannot be known. Asked before the
        first answer of 200 counts.
    """

    def __init__(self, url: str, is_ours: Callable[[], Optional[bool]]) -> None:
        self._url = url
        self._is_ours = is_ours
        self._stop = threading.Event()
        self._latest = Health()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self) -> Health:
        """What is known now; returns at once."""
        return self._latest

    def close(self) -> None:
        """Ends the polling; a poll under way is left to its timeout."""
        self._stop.set()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            problem = ask(self._url, TIMEOUT_SECONDS)
            if not problem and not self._latest.healthy and self._is_ours() is False:
                problem = NOT_OURS
            failures = failures + 1 if problem else 0
            healthy = not problem or (self._latest.healthy and failures < FAILURES_UNTIL_UNHEALTHY)
            self._latest = Health(healthy, problem)
            self._stop.wait(READY_POLL_SECONDS if healthy and not problem else POLL_SECONDS)


def ask(url: str, timeout: float) -> str:
    """Empty when the URL answers 200, else what happened instead."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=timeout)
    try:
        connection.request("GET", parts.path or "/", headers={"Connection": "close"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error}"
    finally:
        connection.close()
    return "" if status == 200 else f"answers {status}"
