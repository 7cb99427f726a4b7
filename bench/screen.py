"""What the screen and its agent cost at rest, with eight GPUs at 1 Hz, beside nvitop on the same GPUs.

python -m bench.screen [SECONDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.hosts import fake_gpus, nvitop, workspace
from bench.measure import Cost, OnTerminal

SECONDS = 20.0


def run(seconds: float = SECONDS) -> list[Cost]:
    """Measures the screen on this machine through the local transport, then nvitop; ``seconds`` each."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment = {**os.environ, **fake_gpus(directory).environment, "TERM": "xterm-256color", "HOME": name}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "NO_COLOR"):
            environment.pop(variable, None)
        config = directory / "config.toml"
        config.write_text(f'[hosts.box]\naddress = "local"\nworkspace = "{workspace(directory / "work")}"\n')
        command = [sys.executable, "-m", "eagle_console.cli", "--config", str(config), "box"]
        with OnTerminal(command, environment) as screen:
            costs = screen.cost(
                seconds, eagle_console=lambda: screen.pid, its_agent=lambda: screen.child("run_agent.py")
            )
        peer = nvitop(directory / "nvitop")
        if peer:
            with OnTerminal([peer, "--interval", "1"], environment) as screen:
                costs += screen.cost(seconds, nvitop=lambda: screen.pid)
        return costs


def main() -> int:
    for cost in run(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS):
        sys.stdout.write(f"{cost}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
