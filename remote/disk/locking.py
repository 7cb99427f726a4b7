"""One deleter at a time in a workspace, and one purger: file locks that end with their process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from remote.disk.ground import Ground
from remote.protocol.errors import CONFLICT, FAILED, RequestError

DELETION = "deletion.lock"
PURGE = "purge.lock"

WAIT_SECONDS = 10.0
_TURN_SECONDS = 0.02


@contextlib.contextmanager
def locked(ground: Ground, name: str, wait: float = WAIT_SECONDS) -> Iterator[None]:
    """Holds a lock of the workspace.

    :param name: ``DELETION`` or ``PURGE``.  :param wait: seconds that its holder may take to give it back.
    :raises RequestError: ``conflict`` where somebody else holds it all that time; ``failed`` where there are no locks.
    """
    folder = ground.state(create=True)
    try:
        descriptor = ground.calls.open_beneath(folder, name, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(FAILED, f"nothing was changed: {name} cannot be opened: {error.strerror}") from None
    finally:
        os.close(folder)
    try:
        _take(descriptor, name, time.monotonic() + wait)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, name: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RequestError(CONFLICT, "somebody else is deleting in this workspace", "try again") from None
        except OSError as error:
            raise RequestError(FAILED, f"nothing was changed: {name} cannot be locked: {error.strerror}") from None
        time.sleep(_TURN_SECONDS)
