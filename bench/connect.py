"""How long it takes from nothing to the first live frame, over a real sshd on loopback, beside ``ssh HOST true``.

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
from dataclasses import dataclass
from pathlib import Path

from eagle_console.config import HostProfile
from eagle_console.link.connect import Target, open_session, reach
from remote.protocol.frames import TOPIC_GPUS
from tests.link.sshd import SshServer, introduce, ssh_server

ROUNDS = 5


@dataclass(frozen=True)
class Times:
    """Seconds of several rounds."""

    name: str
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        low, high, count = min(self.seconds), max(self.seconds), len(self.seconds)
        median = statistics.median(self.seconds)
        return f"{self.name:34}  {median:5.2f} s median  ({low:.2f} to {high:.2f}, n={count})"


def run(rounds: int = ROUNDS) -> list[Times]:
    """Cold (no bundle on the host), warm, and plain ssh, in turn so that noise falls on all alike."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "console"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        with ssh_server(Path(name) / "host") as server:
            introduce(server, home)
            found: dict[str, list[float]] = {"ssh HOST true": [], "cold, bundle uploaded": [], "warm": []}
            for _ in range(rounds):
                found["ssh HOST true"].append(_plain_ssh(server, home))
                shutil.rmtree(server.cache, ignore_errors=True)
                found["cold, bundle uploaded"].append(_in_new_process(server, home))
                found["warm"].append(_in_new_process(server, home))
            return [Times(name, tuple(seconds)) for name, seconds in found.items()]


def _plain_ssh(server: SshServer, home: Path) -> float:
    begin = time.monotonic()
    options = ["-F", "none", "-i", str(server.identity), "-o", f"UserKnownHostsFile={home}/.ssh/known_hosts"]
    user, _, _ = server.address.partition("@")
    subprocess.run(["ssh", *options, "-p", str(server.port), f"{user}@127.0.0.1", "true"], check=True)
    return time.monotonic() - begin


def _in_new_process(server: SshServer, home: Path) -> float:
    """A fresh console each time: nothing of an earlier connection helps. Its imports are not counted, ssh has none."""
    environment = {**os.environ, "HOME": str(home)}
    for variable in ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(variable, None)
    command = [sys.executable, "-m", "bench.connect", "--once", server.address]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


async def _once(address: str) -> float:
    import eagle_console.link.ssh  # noqa: F401 - its import is not part of what is measured

    begin = time.monotonic()
    async with reach(Target(HostProfile("box", address))) as endpoint, open_session(endpoint) as connected:
        async for _ in connected.session.subscribe(TOPIC_GPUS):
            return time.monotonic() - begin
    raise AssertionError("the subscription ended without an event")


def main() -> int:
    if "--once" in sys.argv:
        sys.stdout.write(f"{asyncio.run(_once(sys.argv[-1]))}\n")
        return 0
    for times in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
        sys.stdout.write(f"{times}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
