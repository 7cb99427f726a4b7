"""A folder on this machine or on a host, as one word of the command line: ``DIR`` or ``HOST:DIR``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_ON_HOST = re.compile(r"(?P<host>[^/:][^/]*?):(?P<path>[/~].*|[^:]+)\Z", re.DOTALL)
"""A host may carry a port (``user@host:22:/data/draft``), so a path that begins with ``/`` or ``~`` ends it."""


@dataclass(frozen=True)
class HostPath:
    """Where a folder is. ``host`` is a profile, an alias or an address; None for this machine."""

    host: str | None
    path: str


def parse(word: str) -> HostPath:
    """Reads the word as scp does: a colon before any slash divides host and path; ``./a:b`` is a path here."""
    match = _ON_HOST.match(word)
    if match is None:
        return HostPath(None, os.path.abspath(os.path.expanduser(word)))
    return HostPath(match["host"], match["path"])
