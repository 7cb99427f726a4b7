"""``python -m bench.soak [PART...]``: the long runs that are done by hand, all of them or the parts named.

Each part is a command that fails when something is wrong, with what makes it long in its environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-s")


@dataclass(frozen=True)
class Part:
    """One long run: its command, from the project's folder, and the variables that make it long."""

    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)


PARTS = {
    "swap": Part(
        (*PYTEST, "tests/agent/test_deleting_races.py", "-k", "swapped", "--timeout=3600"), {"SWAP_ROUNDS": "10000"}
    ),
    "kills": Part((*PYTEST, "tests/e2e/test_kill_points.py"), {"KILL_POINTS": "30"}),
    "rules": Part((*PYTEST, "tests/e2e/test_draft_rules.py"), {"DRAFT_RULES_DRAFT": ".pipeline/draft_smollm2"}),
    "fuzz": Part((*PYTEST, "tests/link/test_fuzz_console.py", "tests/agent/test_fuzz_agent.py"), {"FUZZ_EFFORT": "40"}),
}


def main(names: Sequence[str]) -> int:
    """Runs the parts and prints the minutes of each; 1 when one of them failed."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.stderr.write(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}\n")
        return 2
    failed = False
    for name in names or PARTS:
        started = time.monotonic()
        part = PARTS[name]
        code = subprocess.run(part.command, cwd=ROOT, env={**os.environ, **part.variables}, check=False).returncode
        failed |= code != 0
        minutes = (time.monotonic() - started) / 60
        sys.stdout.write(f"{name}: {'failed' if code else 'passed'} in {minutes:.1f} min\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
