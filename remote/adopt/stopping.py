"""Ending an adopted program: only the one that was named, its main process first, then what it left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from remote import procfs
from remote.adopt.watching import Watch
from remote.jobs.ending import Ending
from remote.jobs.orphans import LeftOver
from remote.jobs.signals import signal_name
from remote.policy import Policy
from remote.protocol import adopted, jobs
from remote.protocol.adopted import Adopted
from remote.protocol.errors import CONFLICT, NOT_FOUND, REFUSED, RequestError
from remote.protocol.jobs import ProcessId

TRAINING_GRACE_SECONDS = 300.0  # SIGTERM makes a trainer save its state
GRACE_SECONDS = 20.0
TURN_SECONDS = 0.1

_NO_SESSION = -1  # an adopted program may share its session with a shell and with programs that nobody wants to end


def check(record: Adopted, start_ticks: int, typed: str, policy: Policy) -> ProcessId:
    """The main process to end.

    :raises RequestError: ``refused`` when the policy, the typed name or the owner forbids it, ``conflict`` when the
        process is another one than was shown, or is gone.
    """
    policy.require_writable()
    main = record.main
    if main is None:
        raise RequestError(NOT_FOUND, f"{record.id} is a log without a process: there is nothing to stop")
    if typed != record.name:
        raise RequestError(REFUSED, f"stopping {record.id} needs its name typed exactly", f"its name is {record.name}")
    if main.start_ticks != start_ticks or not procfs.alive(main):
        raise RequestError(CONFLICT, f"process {main.pid} is not the one that was shown any more")
    if os.geteuid() not in (0, procfs.owner(main.pid)):
        raise RequestError(REFUSED, f"process {main.pid} belongs to {record.user or 'another user'}")
    return main


def end(watch: Watch, main: ProcessId, requested_by: str) -> None:
    """Ends it and writes into the watched record what happened; returns when nothing is left or can be done."""
    record = watch.record
    left = LeftOver((main, *record.processes), _NO_SESSION)
    left.members()  # what descends from it must be known before it ends and leaves orphans
    said = [f"stop requested by {requested_by or 'someone'}"]

    def report(number: int, reached: Sequence[ProcessId]) -> None:
        pids = ", ".join(str(process.pid) for process in reached[:20])
        said.append(f"{signal_name(number)} to {pids}")
        watch.update(note="; ".join(said))

    watch.update(state=jobs.STOPPING, note=said[0])
    ending = Ending(main, left.members, report)
    ending.ask(time.monotonic(), TRAINING_GRACE_SECONDS if record.kind == adopted.KIND_TRAINING else GRACE_SECONDS)
    _until_over(ending, lambda: procfs.alive(main))
    if ending.survivors:
        pids = ", ".join(str(process.pid) for process in ending.survivors)
        said.append(f"could not be ended: {pids}")
    else:
        said.append("nothing is left of it")
    watch.update(state=jobs.STOPPED, note="; ".join(said), processes=ending.survivors)


def _until_over(ending: Ending, lives: Callable[[], bool]) -> None:
    while not ending.over:
        now = time.monotonic()
        main_lives = lives()
        if not main_lives:
            ending.main_ended(now)
        ending.step(now, main_lives)
        time.sleep(TURN_SECONDS)
