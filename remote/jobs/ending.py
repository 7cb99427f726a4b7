"""Ending a stage: the main process first, then everything that it left behind, and nothing else.

SIGTERM to a trainer's main process makes it save; SIGTERM to its whole tree kills the data loaders and with them the
save. SIGKILL to vLLM's API server leaves its engine and workers alive and holding GPU memory. So the order is: TERM to
the main process, the stage's own grace, TERM to what is left, KILL to what is still left, round after round, because a
tree can fork while it is being ended.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from remote.jobs.signals import send
from remote.protocol.jobs import ProcessId

SETTLE_SECONDS = 1.0  # for children that end by themselves once the main process is gone
TERM_SECONDS = 5.0
FORCED_TERM_SECONDS = 1.0
KILL_SECONDS = 60.0  # a process in the GPU driver can take long to die; after that it is called a survivor
KILL_ROUNDS = 20

_MAIN, _SETTLE, _TERM, _KILL, _OVER = range(5)

Members = Callable[[], Sequence[ProcessId]]
Report = Callable[[int, Sequence[ProcessId]], None]


class Ending:
    """The end of a process tree, a step at a time: ``step`` sends what is due and never waits.

    :param main: the stage's main process.
    :param members: the living processes of the tree, the main process included, asked anew at every step.
    :param report: told of every signal and whom it reached.
    """

    def __init__(self, main: ProcessId, members: Members, report: Report) -> None:
        self._main = main
        self._members = members
        self._report = report
        self._phase = _MAIN
        self._deadline = float("inf")
        self._term_seconds = TERM_SECONDS
        self._sent: dict[int, set[ProcessId]] = {signal.SIGTERM: set(), signal.SIGKILL: set()}
        self.survivors: tuple[ProcessId, ...] = ()

    @property
    def over(self) -> bool:
        """Nothing is left, or nothing more can be done (``survivors`` is then not empty)."""
        return self._phase == _OVER

    @property
    def killed(self) -> int:
        """How many processes besides the main one had to be ended."""
        return len(set().union(*self._sent.values()) - {self._main})

    def ask(self, now: float, grace: float) -> None:
        """A stop: SIGTERM to the main process, which then has ``grace`` seconds."""
        if self._phase == _MAIN:
            self._deadline = now + grace
            self._send(signal.SIGTERM, (self._main,))

    def force(self, now: float) -> None:
        """A stop without grace, also in the middle of a gentle one."""
        self._term_seconds = FORCED_TERM_SECONDS
        if self._phase in (_MAIN, _SETTLE):
            self._deadline = now

    def main_ended(self, now: float) -> None:
        """The main process is gone; its children may follow it for a moment before they are ended."""
        if self._phase == _MAIN:
            self._phase, self._deadline = _SETTLE, min(self._deadline, now + SETTLE_SECONDS)

    def step(self, now: float, main_lives: bool) -> None:
        """Sends what is due now.

        :param main_lives: whether the main process has not been seen to end; nothing is over before it.
        """
        members = self._members()
        if not members and not main_lives:
            self._phase = _OVER
        elif self._phase in (_MAIN, _SETTLE) and now >= self._deadline:
            self._phase, self._deadline = _TERM, now + self._term_seconds
            self._send(signal.SIGTERM, members)
        elif self._phase == _TERM and now >= self._deadline:
            self._phase, self._deadline = _KILL, now + KILL_SECONDS
            self._kill(members)
        elif self._phase == _KILL and now >= self._deadline:
            self._phase, self.survivors = _OVER, tuple(members)
        elif self._phase == _KILL:
            self._kill(members)

    def _kill(self, members: Sequence[ProcessId]) -> None:
        """Rounds back to back: a tree that forks gets no time to grow between them."""
        for _ in range(KILL_ROUNDS):
            if not self._send(signal.SIGKILL, members):
                return
            members = self._members()

    def _send(self, number: int, members: Sequence[ProcessId]) -> bool:
        """Whether any process was reached that had not had this signal before."""
        reached = [process for process in members if process not in self._sent[number] and send(process, number)]
        self._sent[number].update(reached)
        if reached:
            self._report(number, reached)
        return bool(reached)
