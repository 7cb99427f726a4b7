"""Notices that this computer slept or moved to another network: two ways in which a link dies without a word."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

TICK_SECONDS = 1.0
"""How often whoever waits on a link should ask ``changed``."""

GAP_SECONDS = 5.0
"""A tick that comes this much too late was slept through, or the process was stopped."""

ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses kept for documentation (RFC 5737, RFC 3849): nobody's, so the way to them is the default route."""

SLEPT = "this computer slept"
MOVED = "the network changed"


def awake_clock() -> float:
    """Seconds of a clock that goes on while the computer sleeps, which Python's monotonic clock does not."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # macOS
        return time.time()


def local_addresses(toward: Sequence[str] = ELSEWHERE) -> tuple[str, ...]:
    """The addresses that this computer would use towards others. Nothing is sent: a datagram socket looks it up."""
    found = []
    for address in toward:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found.append(str(probe.getsockname()[0]))
        except OSError:
            continue  # no way there, or no such family here
    return tuple(found)


class Surroundings:
    """What may change around a link.

    :param clock: must count the time asleep.
    :param addresses: this computer's own addresses; empty while there is no network.
    """

    def __init__(
        self,
        clock: Callable[[], float] = awake_clock,
        addresses: Callable[[], tuple[str, ...]] = local_addresses,
    ) -> None:
        self._clock, self._addresses = clock, addresses
        self._at = clock()
        self._where = addresses()

    def changed(self) -> str:
        """``SLEPT`` or ``MOVED`` when that happened since the last call, else nothing. Wants a call every tick."""
        at, where = self._clock(), self._addresses()
        slept = at - self._at > TICK_SECONDS + GAP_SECONDS
        moved = bool(where) and where != self._where
        self._at, self._where = at, where
        return SLEPT if slept else MOVED if moved else ""

    def rest(self) -> None:
        """Begins anew after a time in which nobody asked."""
        self._at = self._clock()
