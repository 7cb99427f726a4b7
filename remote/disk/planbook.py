"""Plans that wait to be carried out: files in a private folder outside the workspace, gone with the boot at the latest.

A plan is taken out by removing its file, so it is carried out at most once, whoever asks and from however many agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Optional

from remote.disk.plan import PLAN_SECONDS, StoredPlan
from remote.jobs.records import RecordError, parse_json, read_file
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import FAILED, REFUSED, ProtocolError, RequestError

_ID = re.compile(r"^[0-9a-f]{16}$")
_MAX_BYTES = 8 * 1024 * 1024


def folders() -> tuple[str, ...]:
    """Where plans are kept: the first that can be written; a full disk leaves the memory's file system."""
    name = f"eagle_console-plans-{os.geteuid()}"
    return tuple(dict.fromkeys(os.path.join(base, name) for base in (tempfile.gettempdir(), "/dev/shm")))


def store(stored: StoredPlan, places: Optional[Sequence[str]] = None) -> None:
    """Keeps a plan.

    :raises RequestError: ``failed`` where it can be kept nowhere.
    """
    data = json.dumps(to_wire(stored), allow_nan=False).encode("ascii")
    problem = "no folder for plans"
    for folder in folders() if places is None else places:
        try:
            _prepare(folder)
            path = os.path.join(folder, stored.plan.id)
            descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                os.rename(path + ".new", path)
            except OSError:
                os.unlink(path + ".new")
                raise
            return
        except OSError as error:
            problem = f"{folder}: {error.strerror or error}"
    raise RequestError(FAILED, f"the plan cannot be kept until it is confirmed ({problem})")


def load(plan_id: str, places: Optional[Sequence[str]] = None) -> StoredPlan:
    """A plan that waits.

    :raises RequestError: ``refused`` where there is none of that id: unknown, used or expired.
    """
    for path in _paths(plan_id, folders() if places is None else places):
        try:
            data = read_file(path, _MAX_BYTES)
            if data is not None:
                return from_wire(StoredPlan, parse_json(data))
        except (RecordError, ProtocolError) as error:
            raise RequestError(REFUSED, f"the plan {plan_id} cannot be used: {error}") from None
    raise _unknown(plan_id)


def remove(plan_id: str, places: Optional[Sequence[str]] = None) -> None:
    """Takes a plan out, for good: of several who ask at once, one succeeds.

    :raises RequestError: ``refused`` for the others.
    """
    for path in _paths(plan_id, folders() if places is None else places):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            return
    raise _unknown(plan_id)


def _unknown(plan_id: str) -> RequestError:
    return RequestError(REFUSED, f"there is no plan {plan_id} here: it was used, has expired or was made elsewhere")


def _paths(plan_id: str, places: Sequence[str]) -> Iterator[str]:
    if not _ID.match(plan_id):
        return
    for folder in places:
        with contextlib.suppress(OSError):
            if _ours(folder):
                yield os.path.join(folder, plan_id)


def _prepare(folder: str) -> None:
    """Makes the folder, and removes plans that nobody can use any more."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not _ours(folder):
        raise OSError(0, "it is not ours alone")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > 2 * PLAN_SECONDS:
                os.unlink(path)


def _ours(folder: str) -> bool:
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
