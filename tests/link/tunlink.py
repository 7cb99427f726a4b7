"""A bad network between this machine and a network namespace: two TUN devices, and a program that carries the packets.

It delays, loses and swallows real packets of real TCP connections, which the kernel's own ``netem`` would do where it
is built in. It needs root, /dev/net/tun and iproute2; ``available`` says whether they are there.

As a program, ``python tunlink.py NAME HOST_ADDRESS PEER_ADDRESS`` carries packets until its stdin ends. Each line of
stdin is a JSON object with the fields of ``Weather``, which holds from then on.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import json
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_PACKETS_A_TURN = 64
_numbers = itertools.count()


@dataclass(frozen=True)
class Weather:
    """What happens to a packet. Times in seconds and one way, losses as a share of 1.

    ``lost_there`` holds for packets to the namespace, ``lost_back`` for those from it. A link that is down swallows
    everything: nobody is told.
    """

    delay: float = 0.0
    jitter: float = 0.0
    lost_there: float = 0.0
    lost_back: float = 0.0
    down: bool = False


FAR = Weather(delay=0.05)
"""A round trip of 100 ms."""

DOWN = Weather(down=True)


class TunLink:
    """A running link. ``enter`` in front of a command runs it on the other side."""

    def __init__(self, name: str, host_address: str, peer_address: str, carrier: subprocess.Popen[str]) -> None:
        self.name, self.host_address, self.peer_address = name, host_address, peer_address
        self._carrier = carrier

    @property
    def enter(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def becomes(self, weather: Weather) -> None:
        """Changes the weather; packets that are on their way keep theirs."""
        assert self._carrier.stdin
        self._carrier.stdin.write(json.dumps(asdict(weather)) + "\n")
        self._carrier.stdin.flush()

    def move(self) -> None:
        """Gives this machine another address on the link: what is bound to the old one is cut off without a word."""
        net, _, last = self.peer_address.rpartition(".")
        host_address = f"{net}.{int(last) + 1}"
        _ip("addr", "del", f"{self.host_address}/29", "dev", f"h{self.name}")
        _ip("addr", "add", f"{host_address}/29", "dev", f"h{self.name}")
        self.host_address = host_address


def available() -> bool:
    """Whether this machine lets us make such a link."""
    return os.geteuid() == 0 and os.access(TUN_DEVICE, os.R_OK | os.W_OK) and shutil.which("ip") is not None


@contextmanager
def tun_link(weather: Weather = FAR) -> Iterator[TunLink]:
    """A link to a new namespace, for as long as the context lasts. Its addresses are those kept for benchmarks."""
    number = (os.getpid() * 16 + next(_numbers)) % (1 << 14)
    name = f"ec{number}"
    net = f"198.{18 + (number >> 13)}.{(number >> 5) & 255}.{(number & 31) * 8}".rpartition(".")
    host_address, peer_address = (f"{net[0]}.{int(net[2]) + place}" for place in (1, 2))
    _ip("netns", "add", name)
    try:
        command = [sys.executable, __file__, name, host_address, peer_address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as carrier:
            assert carrier.stdin and carrier.stdout
            if carrier.stdout.readline() != "ready\n":
                raise RuntimeError(f"the link {name} could not be made")
            link = TunLink(name, host_address, peer_address, carrier)
            link.becomes(weather)
            try:
                yield link
            finally:
                carrier.stdin.close()
    finally:
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _open_tun(name: str) -> int:
    """A file descriptor whose reads and writes are the packets of the new device ``name``."""
    device = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return device


def _carry(here: int, there: int) -> None:
    """Moves packets between the two devices until stdin ends."""
    weather = Weather()
    orders = b""
    on_the_way: list[tuple[float, int, int, bytes]] = []
    order = itertools.count()
    poll = select.poll()
    for descriptor in (here, there, 0):
        poll.register(descriptor, select.POLLIN)
    while True:
        now = time.monotonic()
        while on_the_way and on_the_way[0][0] <= now:
            _, _, device, packet = heapq.heappop(on_the_way)
            try:
                os.write(device, packet)
            except OSError:
                pass  # the device does not take it: lost like any other
        wait = None if not on_the_way else max(0.0, on_the_way[0][0] - time.monotonic()) * 1000
        for descriptor, _ in poll.poll(wait):
            if descriptor == 0:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, orders = (orders + data).split(b"\n")
                for line in lines:
                    weather = Weather(**json.loads(line))
                continue
            lost = weather.lost_there if descriptor == here else weather.lost_back
            for _ in range(_PACKETS_A_TURN):
                try:
                    packet = os.read(descriptor, 65536)
                except BlockingIOError:
                    break
                if weather.down or random.random() < lost:
                    continue
                due = time.monotonic() + weather.delay + random.random() * weather.jitter
                heapq.heappush(on_the_way, (due, next(order), there if descriptor == here else here, packet))


def main() -> None:
    name, host_address, peer_address = sys.argv[1:]
    here, there = _open_tun(f"h{name}"), _open_tun(f"p{name}")
    _ip("link", "set", f"p{name}", "netns", name)
    _ip("addr", "add", f"{host_address}/29", "dev", f"h{name}")
    _ip("link", "set", f"h{name}", "up")
    _ip("-n", name, "addr", "add", f"{peer_address}/29", "dev", f"p{name}")
    _ip("-n", name, "link", "set", f"p{name}", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    _carry(here, there)


if __name__ == "__main__":
    main()
