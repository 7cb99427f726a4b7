"""Fingerprints of files and folders: the same content has the same one, wherever it is and whenever it was written.

Of a large file the size and three samples count, so that a verifier of 540 GB is known in a second or two. A change
within a large file that keeps its size and misses the samples is not seen; our own stages never write such a change.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from typing import Any

WHOLE_BYTES = 1024 * 1024
"""Files up to this size are read whole."""

SAMPLE_BYTES = 64 * 1024

ABSENT = "absent"


def fingerprint(path: str, without: Sequence[str] = ()) -> str:
    """The fingerprint of a file, or of a folder with everything below it; ``absent`` where there is nothing.

    Names that begin with a dot and ``*.lock`` files are no content. Symbolic links count as what they point to.

    :param without: names of folders inside that do not count.
    :raises OSError: when something in it cannot be read.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ABSENT
    digest = hashlib.sha256()
    if stat.S_ISDIR(status.st_mode):
        for relative in _files(path, without):
            digest.update(relative.encode("utf-8", "surrogateescape") + b"\0")
            digest.update(_file(os.path.join(path, relative)))
    else:
        digest.update(_file(path))
    return digest.hexdigest()[:32]


def of_values(*values: Any) -> str:
    """The fingerprint of plain values, by their representation."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:32]


def _files(folder: str, without: Sequence[str]) -> list[str]:
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in without]
        found += [
            os.path.relpath(os.path.join(root, name), folder)
            for name in names
            if not name.startswith(".") and not name.endswith(".lock")
        ]
    return sorted(found)


def _file(path: str) -> bytes:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(str(size).encode())
        if size <= WHOLE_BYTES:
            digest.update(file.read())
        else:
            for start in (0, size // 2, size - SAMPLE_BYTES):
                file.seek(start)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()
