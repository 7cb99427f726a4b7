"""How long it takes from nothing to the first live frame, and back to one after a cut, beside ``ssh HOST true``.

Over a real sshd on loopback, and over a link with a round trip of 100 ms where this machine can make one (root and
/dev/net/tun).

python -m bench.connect [ROUNDS]
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from link import tunlink
from link.sshd import SshServer, introduce, ssh_server

from eagle_console.config import HostProfile
from eagle_console.link.connect import Target, open_session, reach
from eagle_console.link.supervisor import Supervisor
from eagle_console.state import HostState
from remote.protocol.frames import TOPIC_GPUS

ROUNDS = 5
ROUND_TRIP_SECONDS = 0.1

PLAIN = "ssh HOST true"
COLD = "cold, bundle uploaded"
WARM = "warm"
CUT = "after a cut"
"""From the loss of the connection; the wait of 0.5 to 1 s before the first new try is part of it."""


@dataclass(frozen=True)
class Times:
    """Seconds of several rounds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        low, high, count = min(self.seconds), max(self.seconds), len(self.seconds)
        return f"{self.name:34}  {self.median:5.2f} s median  ({low:.2f} to {high:.2f}, n={count})"


def lines(rounds: int = ROUNDS) -> Iterator[object]:
    """All of it, a line a figure."""
    near = run(rounds)
    yield from near
    far = run_far(rounds)
    if not far:
        yield "nothing about a far host: such a link takes root and /dev/net/tun"
        return
    yield "the same with a round trip of 100 ms:"
    yield from far
    yield from round_trips(near, far)


def run(rounds: int = ROUNDS) -> list[Times]:
    """On loopback: cold (no bundle on the host), warm, after a cut, and plain ssh."""
    with _home() as home, ssh_server(home / "host") as server:
        return _measure(server, home, rounds)


def run_far(rounds: int = ROUNDS) -> list[Times]:
    """The same with a round trip of 100 ms; nothing where such a link cannot be made."""
    if not tunlink.available():
        return []
    with (
        _home() as home,
        tunlink.tun_link(tunlink.Weather(delay=ROUND_TRIP_SECONDS / 2)) as link,
        ssh_server(home / "host", host=link.peer_address, enter=link.enter) as server,
    ):
        return _measure(server, home, rounds)


def round_trips(near: list[Times], far: list[Times]) -> list[str]:
    """How many times each waits for the other side: what the distance adds, in round trips."""
    added = ((one.name, (other.median - one.median) / ROUND_TRIP_SECONDS) for one, other in zip(near, far, strict=True))
    return [f"{name:34}  {count:5.1f} round trips" for name, count in added if name != CUT]


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "console"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        yield home


def _measure(server: SshServer, home: Path, rounds: int) -> list[Times]:
    """All in turn, so that noise falls on all alike."""
    introduce(server, home)
    found: dict[str, list[float]] = {PLAIN: [], COLD: [], WARM: [], CUT: []}
    for _ in range(rounds):
        found[PLAIN].append(_plain_ssh(server, home))
        shutil.rmtree(server.cache, ignore_errors=True)
        found[COLD].append(_in_new_process(server, home))
        found[WARM].append(_in_new_process(server, home))
        found[CUT].append(_after_cut(server, home))
    return [Times(name, tuple(seconds)) for name, seconds in found.items()]


def _plain_ssh(server: SshServer, home: Path) -> float:
    begin = time.monotonic()
    options = ["-F", "none", "-i", str(server.identity), "-o", f"UserKnownHostsFile={home}/.ssh/known_hosts"]
    user, _, _ = server.address.partition("@")
    subprocess.run(["ssh", *options, "-p", str(server.port), f"{user}@{server.host}", "true"], check=True)
    return time.monotonic() - begin


def _in_new_process(server: SshServer, home: Path) -> float:
    """A fresh console each time: nothing of an earlier connection helps. Its imports are not counted, ssh has none."""
    command = [sys.executable, "-m", "bench.connect", "--once", server.address]
    return float(subprocess.run(command, env=_environment(home), check=True, capture_output=True, text=True).stdout)


def _after_cut(server: SshServer, home: Path) -> float:
    """A console whose connection is cut once it is live; a new one each time, since the wait grows with the losses."""
    command = [sys.executable, "-m", "bench.connect", "--stay", server.address]
    with subprocess.Popen(command, env=_environment(home), stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout
        try:
            console.stdout.readline()
            begin = time.monotonic()
            server.drop_connections()
            console.stdout.readline()
            return time.monotonic() - begin
        finally:
            console.kill()


def _environment(home: Path) -> dict[str, str]:
    environment = {**os.environ, "HOME": str(home)}
    for variable in ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(variable, None)
    return environment


async def _once(address: str) -> None:
    """Says how long the first live frame took."""
    import eagle_console.link.ssh  # noqa: F401 - its import is not part of what is measured

    begin = time.monotonic()
    target = Target(HostProfile("box", address))
    async with reach(target) as endpoint, open_session(endpoint, topics=(TOPIC_GPUS,)) as connected:
        async for _ in connected.session.subscribe(TOPIC_GPUS):
            sys.stdout.write(f"{time.monotonic() - begin}\n")
            return


async def _stay(address: str) -> None:
    """Says a word at the first reading that comes over each new connection."""
    seen: set[int] = set()
    newest = 0.0

    def publish(state: HostState) -> None:
        nonlocal newest
        if state.hello is None or state.host is None or state.host.received == newest:
            return
        newest = state.host.received
        if state.hello.pid not in seen:
            seen.add(state.hello.pid)
            sys.stdout.write("live\n")
            sys.stdout.flush()

    await Supervisor(Target(HostProfile("box", address)), publish).run()


def main() -> int:
    modes: dict[str, Callable[[str], object]] = {
        "--once": lambda address: asyncio.run(_once(address)),
        "--stay": lambda address: asyncio.run(_stay(address)),
    }
    if len(sys.argv) > 2:
        modes[sys.argv[1]](sys.argv[2])
        return 0
    for line in lines(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
