"""``make bench``, or ``python -m bench [PART...]``: everything or the parts named, one line a figure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench import connect, deleting, disk, explain_log, fleet, get, logs, screen


@dataclass(frozen=True)
class Part:
    """What is measured, with its budget, and the lines that say what came out."""

    title: str
    lines: Callable[[], Iterable[object]]


PARTS = {
    "connect": Part(
        "Over a real sshd on loopback, then 100 ms away, to the first live frame (budget: cold 2 s, warm 1 s, far 3 s)",
        connect.lines,
    ),
    "screen": Part(
        "At rest, eight GPUs at 1 Hz, 120x34 (budget: agent 1 % and 45 MB, console 5 % and 30 kB/s)", screen.run
    ),
    "fleet": Part("Sixteen hosts side by side at 200x60 (budget: console 25 %, key to paint 100 ms p95)", fleet.run),
    "logs": Part("A log of 2,000 lines a second on the screen (budget: 15 %)", logs.run),
    "get": Part("A file of 1 GB over a real sshd on loopback (budget: a third of cat)", get.run),
    "disk": Part("Disk (budget: scan within twice du -s, refresh 1 ms CPU, 60 MB)", lambda: [disk.run()]),
    "explain_log": Part("A vLLM log of 1 GB (budget: 20 s and 60 MB, then 1 % of a core)", explain_log.run),
    "deleting": Part(
        "Deleting eight checkpoints of 56 files (budget: commit 250 ms, an opener waits 50 ms)", deleting.run
    ),
}


def main(names: Sequence[str]) -> int:
    write = sys.stdout.write
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.stderr.write(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}\n")
        return 2
    for name in names or PARTS:
        write(f"{name}: {PARTS[name].title}\n")
        for line in PARTS[name].lines():
            write(f"  {line}\n")
            sys.stdout.flush()
        write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
