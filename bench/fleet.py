"""What the screen costs with sixteen hosts side by side, and how long a key takes to be painted.

python -m bench.fleet [SECONDS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.hosts import fake_gpus, workspace
from bench.measure import WARM_UP_SECONDS, Cost, OnTerminal

SECONDS = 20.0
HOSTS = 16
KEYS = 40
_HELP = b"All hosts side by side"
"""A sentence of the help that only the help shows."""


def run(seconds: float = SECONDS) -> list[Cost | str]:
    """Sixteen agents of this machine, each with eight fake GPUs at 1 Hz, on the screen of the hosts at 200x60."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment = {**os.environ, **fake_gpus(directory).environment, "TERM": "xterm-256color", "HOME": name}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "NO_COLOR"):
            environment.pop(variable, None)
        shared = workspace(directory / "work")
        config = directory / "config.toml"
        config.write_text(
            "".join(f'[hosts.box-{n}]\naddress = "local"\nworkspace = "{shared}"\n' for n in range(HOSTS))
        )
        command = [sys.executable, "-m", "eagle_console.cli", "--config", str(config)]
        with OnTerminal(command, environment, columns=200, lines=60) as screen:
            _wait_for_agents(screen)
            costs: list[Cost | str] = list(screen.cost(seconds, console_with_16_hosts=lambda: screen.pid))
            taken = sorted(_key(screen) for _ in range(KEYS))
        middle, late = statistics.median(taken), taken[int(0.95 * KEYS) - 1]
        return [
            *costs,
            f"key to paint of the whole help: {1e3 * middle:.0f} ms median, {1e3 * late:.0f} ms p95, n={KEYS}",
        ]


def _wait_for_agents(screen: OnTerminal) -> None:
    """They begin a few at a time, and a few cores start sixteen interpreters; then the first pictures come.

    :raises TimeoutError: when they do not all run after two minutes.
    """
    deadline = time.monotonic() + 120
    while screen.children("run_agent.py") < HOSTS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{screen.children('run_agent.py')} of {HOSTS} agents run")
        time.sleep(0.5)
    time.sleep(WARM_UP_SECONDS)


def _key(screen: OnTerminal) -> float:
    """Seconds from the key until the help is on the terminal."""
    seconds = screen.answer(b"?", _HELP)
    screen.write(b"\x1b")
    time.sleep(0.4)
    return seconds


def main() -> int:
    for line in run(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
