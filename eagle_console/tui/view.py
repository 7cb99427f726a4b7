"""What one painting of the screen shows: the host's state with the clocks' readings of that moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.config import HostProfile
from eagle_console.state import STALE_SECONDS, Freshness, HostState, LinkState, Timed, freshness
from eagle_console.tui.keymap import DEFAULT, Keymap
from remote.protocol.jobs import LIVE_STATES, Job


@dataclass(frozen=True)
class View:
    """One picture. ``now`` is the console's monotonic clock, ``wall`` its wall clock, both in seconds."""

    state: HostState
    profile: HostProfile
    now: float
    wall: float
    ascii: bool = False
    paused: bool = False
    keymap: Keymap = DEFAULT

    @property
    def connected(self) -> bool:
        return self.state.link.state is LinkState.LIVE

    def is_current(self, value: Timed[Any] | None, stale_after: float = STALE_SECONDS) -> bool:
        """Whether the value is fresh enough to be shown as it is now, not dimmed."""
        return freshness(self.state, value, self.now, stale_after)[0] in (Freshness.LIVE, Freshness.NONE)

    def mark(self, value: Timed[Any] | None, stale_after: float = STALE_SECONDS) -> Content:
        """The freshness of a value in one word with its age where it is not live."""
        kind, age = freshness(self.state, value, self.now, stale_after)
        if kind is Freshness.LIVE:
            return Content.styled("LIVE", "$text-success")
        if kind is Freshness.NONE:
            words = {LinkState.LIVE: "no data yet", LinkState.CONNECTING: "connecting"}
            return Content.styled(words.get(self.state.link.state, "DOWN"), "$foreground-muted")
        style = "$text-warning bold" if kind is Freshness.STALE else "$text-error bold"
        return Content.styled(f"{kind.value} {fmt.age(age)}", style)

    def seconds(self, job: Job) -> float | None:
        """How long a job runs by now: its last reading, and while that is fresh the time since it."""
        jobs = self.state.jobs
        fresh = freshness(self.state, jobs, self.now)[0] is Freshness.LIVE
        if job.seconds is None or jobs is None or not fresh or job.state not in LIVE_STATES:
            return job.seconds
        return job.seconds + max(0.0, self.now - jobs.received)
