"""``make bench``: everything, one line a figure."""

from __future__ import annotations

import sys

from bench import connect, screen


def main() -> int:
    write = sys.stdout.write
    write("Connecting over a real sshd on loopback, to the first live frame (budget: cold 2 s, warm 1 s)\n")
    for times in connect.run():
        write(f"  {times}\n")
    write("\nAt rest, eight GPUs at 1 Hz, 120x34 (budget: agent 1 % and 45 MB, console 5 % and 30 kB/s)\n")
    for cost in screen.run():
        write(f"  {cost}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
