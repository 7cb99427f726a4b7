"""``make bench``: everything, one line a figure."""

from __future__ import annotations

import sys

from bench import connect, deleting, disk, explain_log, get, screen


def main() -> int:
    write = sys.stdout.write
    write("Connecting over a real sshd on loopback, to the first live frame (budget: cold 2 s, warm 1 s)\n")
    near = connect.run()
    for times in near:
        write(f"  {times}\n")
    write("\nThe same with a round trip of 100 ms (budget: 3 s); needs root and /dev/net/tun\n")
    far = connect.run_far()
    for line in [*map(str, far), *(connect.round_trips(near, far) if far else [])]:
        write(f"  {line}\n")
    write("\nAt rest, eight GPUs at 1 Hz, 120x34 (budget: agent 1 % and 45 MB, console 5 % and 30 kB/s)\n")
    for cost in screen.run():
        write(f"  {cost}\n")
    write("\nA file of 1 GB over a real sshd on loopback (budget: a third of cat)\n")
    for rates in get.run():
        write(f"  {rates}\n")
    write("\nDisk (budget: scan within twice du -s, refresh 1 ms CPU, 60 MB)\n")
    write(f"  {disk.run()}\n")
    write("\nA vLLM log of 1 GB (budget: 20 s and 60 MB, then 1 % of a core)\n")
    for figure in explain_log.run():
        write(f"  {figure}\n")
    write("\nDeleting eight checkpoints of 56 files (budget: commit 250 ms, an opener waits 50 ms)\n")
    for cost in deleting.run():
        write(f"  {cost}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
