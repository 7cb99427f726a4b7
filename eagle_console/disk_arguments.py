"""The commands about the disk: their arguments and summaries."""

from __future__ import annotations

import argparse

from eagle_console.arguments import Describe, add_host, count
from eagle_console.commands import checkpoints, disk, journal, pin, prune, trash, triage
from eagle_console.disk_words import LAST
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE


def _disk(parser: argparse.ArgumentParser) -> None:
    add_host(parser, disk.disk)
    parser.add_argument("directories", nargs="*", default=[], metavar="DIR", help="only these artifact directories")


def _checkpoints(parser: argparse.ArgumentParser) -> None:
    add_host(parser, checkpoints.checkpoints)
    parser.add_argument("directory", metavar="DIR", help="of a training run; relative to the workspace, or absolute")


def _triage(parser: argparse.ArgumentParser) -> None:
    add_host(parser, triage.triage)
    parser.add_argument("directories", nargs="*", default=[], metavar="DIR", help="only these, with every reason")


def _prune(parser: argparse.ArgumentParser) -> None:
    add_host(parser, prune.prune)
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="relative to the workspace, or absolute")
    parser.add_argument(
        "--policy", choices=prune.POLICIES, help="of the run PATH: best, newest two and last resumable stay"
    )
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--trim", dest="level", action="store_const", const=LEVEL_TRIM, help="only optimizer and scheduler state"
    )
    level.add_argument(
        "--whole",
        dest="level",
        action="store_const",
        const=LEVEL_WHOLE,
        help="all, whatever the profile says",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what goes and what stays, move nothing")
    parser.add_argument("--confirm", metavar="TEXT", help="what must be typed where disuse cannot be fully proven")


def _undo(parser: argparse.ArgumentParser) -> None:
    add_host(parser, trash.undo)
    parser.add_argument("receipt", metavar="RECEIPT", help=f"an id, the beginning of one, or {LAST}")


def _purge(parser: argparse.ArgumentParser) -> None:
    add_host(parser, trash.purge)
    parser.add_argument("receipt", nargs="?", metavar="RECEIPT", help=f"an id, the beginning of one, or {LAST}")
    parser.add_argument("--expired", action="store_true", help="all that has lain there for longer than it is kept")


def _pin(parser: argparse.ArgumentParser) -> None:
    add_host(parser, pin.pin)
    parser.add_argument("path", metavar="PATH", help="relative to the workspace, or absolute")
    parser.add_argument("--remove", action="store_true", help="let go of it again")


def _journal(parser: argparse.ArgumentParser) -> None:
    add_host(parser, journal.journal)
    parser.add_argument("--tail", type=count, metavar="N", default=journal.DEFAULT_ENTRIES, help="the last N entries")


DISK_COMMANDS: dict[str, tuple[str, Describe]] = {
    "disk": ("artifact directories and what they take", _disk),
    "checkpoints": ("the checkpoints of a training run", _checkpoints),
    "triage": ("what is stale, torn or kept, and why", _triage),
    "prune": ("move artifacts into the trash; undo brings them back", _prune),
    "undo": ("put back what a prune moved away", _undo),
    "purge": ("free what lies in the trash, for good", _purge),
    "trash": ("what lies in the trash, and for how long", lambda parser: add_host(parser, trash.trash)),
    "pin": ("protect a path from every prune", _pin),
    "journal": ("who deleted what, when and why", _journal),
}
