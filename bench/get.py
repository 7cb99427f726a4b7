"""How fast ``get`` fetches a file over a real sshd on loopback, beside ``ssh HOST cat`` of the same file.

python -m bench.get [MEGABYTES [ROUNDS]]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from link.sshd import SshServer, introduce, ssh_server

MEGABYTES, ROUNDS = 1000, 3


@dataclass(frozen=True)
class Rates:
    """Bytes a second of several rounds."""

    name: str
    rates: tuple[float, ...]

    def __str__(self) -> str:
        low, high, count = min(self.rates) / 1e6, max(self.rates) / 1e6, len(self.rates)
        median = statistics.median(self.rates) / 1e6
        return f"{self.name:34}  {median:5.0f} MB/s median  ({low:.0f} to {high:.0f}, n={count})"


def run(megabytes: int = MEGABYTES, rounds: int = ROUNDS) -> list[Rates]:
    """Both in turn, so that noise falls on both alike. ``get`` also hashes on both sides; its start is counted."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "console"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        source = Path(name) / "model.safetensors"
        with source.open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(1_000_000))
        found: dict[str, list[float]] = {"ssh HOST cat FILE > COPY": [], "eagle-console get": []}
        with ssh_server(Path(name) / "host") as server:
            introduce(server, home)
            for _ in range(rounds):
                found["ssh HOST cat FILE > COPY"].append(_cat(server, home, source))
                found["eagle-console get"].append(_get(server, home, source))
        return [Rates(name, tuple(rates)) for name, rates in found.items()]


def _cat(server: SshServer, home: Path, source: Path) -> float:
    user, _, _ = server.address.partition("@")
    options = ["-F", "none", "-i", str(server.identity), "-o", f"UserKnownHostsFile={home}/.ssh/known_hosts"]
    command = ["ssh", *options, "-p", str(server.port), f"{user}@127.0.0.1", f"cat {source}"]
    copy = home / "copy"
    begin = time.monotonic()
    with copy.open("wb") as out:
        subprocess.run(command, check=True, stdout=out)
    seconds = time.monotonic() - begin
    copy.unlink()
    return source.stat().st_size / seconds


def _get(server: SshServer, home: Path, source: Path) -> float:
    environment = {**os.environ, "HOME": str(home)}
    for variable in ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(variable, None)
    command = [sys.executable, "-m", "eagle_console.cli", "get", server.address, str(source), "--json"]
    begin = time.monotonic()
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": os.getcwd()}, cwd=home, check=True, stdout=subprocess.PIPE, text=True
    )
    seconds = time.monotonic() - begin
    copy = Path(json.loads(done.stdout)["destination"])
    copy.unlink()
    return source.stat().st_size / seconds


def main() -> int:
    numbers = [int(word) for word in sys.argv[1:]]
    for rates in run(*numbers):
        sys.stdout.write(f"{rates}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
