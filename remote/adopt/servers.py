"""Asking a server that we did not start: which port it listens on, whether it is healthy, and its ``/metrics``.

Only on loopback, only where the process itself listens, with short timeouts, a bounded answer and no redirects.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Union

from remote.jobs import listening
from remote.jobs.listening import Listener

TIMEOUT_SECONDS = 2.0
MAX_BYTES = 4 * 1024 * 1024
"""Of an answer: histograms of many engines reach several hundred kilobytes."""

_LOOPBACK = {"00000000": "127.0.0.1", "0100007F": "127.0.0.1"}
_LOOPBACK_6 = {
    "0" * 32: "::1",
    "0" * 24 + "01000000": "::1",
    "0" * 16 + "FFFF00000100007F": "127.0.0.1",
}


@dataclass(frozen=True)
class Address:
    """Where a server can be asked. ``host`` is None when it does not listen on loopback."""

    port: int
    host: Optional[str]


def address_of(pids: Sequence[int], uid: Optional[int], expected: Optional[int]) -> Optional[Address]:
    """Where a server listens, None while it does not or where that cannot be told.

    :param expected: the port that its command line names: it is preferred among several, and for a process whose
        sockets are hidden it is taken when the same user listens there.
    """
    mine: set[str] = set()
    hidden = False
    for pid in pids:
        sockets = listening.sockets_of(pid)
        if sockets is None:
            hidden = True
        else:
            mine |= sockets
    everyone = list(listening.listeners())
    found = [listener for listener in everyone if listener.inode in mine]
    if not found and hidden:
        found = [listener for listener in everyone if listener.port == expected and listener.uid == uid]
    # An engine listens too (its coordination sockets): only the port that was asked for is certainly the server's.
    chosen = [listener for listener in found if listener.port == expected] or _only_port(found)
    if not chosen:
        return None
    return Address(chosen[0].port, next((host for host in map(_host, chosen) if host), None))


def in_another_network(pid: int) -> bool:
    """Whether the process certainly is in a network namespace of its own: its ports are not ours then."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False


def metrics(address: Address) -> Optional[str]:
    """The text of ``/metrics``; None when there is none."""
    answer = get(address, "/metrics", MAX_BYTES)
    return answer[1].decode("utf-8", "replace") if isinstance(answer, tuple) and answer[0] == 200 else None


def health(address: Address) -> str:
    """Empty when ``/health`` answers 200, else what happened instead."""
    answer = get(address, "/health", 1024)
    if isinstance(answer, str):
        return answer
    return "" if answer[0] == 200 else f"/health answers {answer[0]}"


def get(address: Address, path: str, limit: int) -> Union[tuple[int, bytes], str]:
    """Status and the first ``limit`` bytes of an answer, or why there is none."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    connection = http.client.HTTPConnection(address.host or "127.0.0.1", address.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Connection": "close", "Accept-Encoding": "identity"})
        response = connection.getresponse()
        body = bytearray()
        while len(body) < limit and time.monotonic() < deadline:
            piece = response.read1(min(65536, limit - len(body)))
            if not piece:
                break
            body += piece
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"no answer: {error}"
    finally:
        connection.close()
    return response.status, bytes(body)


def _only_port(found: Sequence[Listener]) -> list[Listener]:
    ports = {listener.port for listener in found}
    return list(found) if len(ports) == 1 else []


def _host(listener: Listener) -> Optional[str]:
    return (_LOOPBACK if len(listener.address) == 8 else _LOOPBACK_6).get(listener.address)
