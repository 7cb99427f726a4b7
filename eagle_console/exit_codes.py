"""The exit codes of the command line, as scripts rely on them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    CONNECTION = 3
    TIMEOUT = 4
    REFUSED = 5  # by a safety rule: read-only, a blocked check, a missing confirmation
    CRASH = 70
    INTERRUPTED = 130
