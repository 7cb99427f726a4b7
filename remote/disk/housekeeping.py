"""What agents and runners do for the trash on the side: mend what a crash left, purge what has expired, keep room.

It runs in a thread of its own, at the start and every hour; whatever hinders it hinders nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Optional

from remote.disk.ground import STATE
from remote.journal import FILE
from remote.policy import Policy

INTERVAL_SECONDS = 3600.0


def start(policy: Policy, prepare: bool = False) -> Optional[threading.Thread]:
    """Begins to keep house in the background; None where there is nothing to do over this connection.

    :param prepare: also make the trash and the journal, so that they are there when the disk is full. Runners do that:
        what fills the disk is what they run.
    """
    if policy.readonly or not policy.workspace:
        return None
    thread = threading.Thread(target=_keep, args=(policy, prepare), name="trash-keeping", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: the next agent or runner does it
        return None
    return thread


def _keep(policy: Policy, prepare: bool) -> None:
    while True:
        if prepare or os.path.lexists(os.path.join(policy.workspace or "", STATE, FILE)):
            from remote.disk.deletion import Deletion  # most agents meet no journal and need not load the engine

            engine = Deletion(policy)
            if prepare:
                engine.prepare()
            engine.housekeeping()
        time.sleep(INTERVAL_SECONDS)
