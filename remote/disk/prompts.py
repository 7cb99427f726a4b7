"""Which prompts a data set was made from: digests of its conversations, to see that a newer one holds them all."""

from __future__ import annotations

import hashlib
import json

from remote.disk.completeness import Entry, open_regular

BYTE_LIMIT = 32 * 2**20
COUNT_LIMIT = 20_000


class Prompts:
    """Reads prompt files and keeps their digests until they change."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], frozenset[bytes]] = {}

    def read(self, path: str, entry: Entry) -> frozenset[bytes]:
        """The digests of the conversations in a JSON lines file; none of a file that is too long to compare."""
        if entry.apparent > BYTE_LIMIT:
            return frozenset()
        if entry.stamp not in self._known:
            try:
                with open_regular(path) as file:
                    self._known[entry.stamp] = frozenset(_digest(line) for line in file if line.strip())
            except OSError:
                return frozenset()
        found = self._known[entry.stamp]
        return found if len(found) <= COUNT_LIMIT else frozenset()


def _digest(line: bytes) -> bytes:
    """Of what was asked: the ids of two files can be the same numbers."""
    try:
        line = json.dumps(json.loads(line)["conversations"], sort_keys=True).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return hashlib.sha256(line).digest()[:12]
