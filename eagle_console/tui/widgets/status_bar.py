"""The top line: host, link, what must be known at once, and the clock. What does not fit is left out."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.state import Freshness, LinkState, Timed, freshness
from eagle_console.text import clean, shorten
from eagle_console.tui.view import View
from eagle_console.tui.widgets.gpu_panel import gpu_summary
from eagle_console.tui.widgets.lines import Lines

_GAP = "   "


class StatusBar(Lines):
    """One line. The link, and the banners READ-ONLY, SIMULATED and PAUSED, always stay."""

    def show(self, view: View) -> None:
        """Paints the line for a picture."""
        self.set_lines([status_line(view, self.size.width)])


def status_line(view: View, width: int) -> Content:
    """The line for a width: host and link, then banners, then GPUs, jobs and disk, the clock at the right."""
    clock = fmt.clock(view.wall)
    left = Content.assemble(" ", (shorten(clean(view.state.name), max(8, width // 4)), "bold"), "  ", link_mark(view))
    for banner in _banners(view):
        left = Content.assemble(left, "  ", banner)
    for fact in _facts(view):
        longer = Content.assemble(left, _GAP, fact)
        if longer.cell_length + len(clock) + 3 <= width:
            left = longer
    gap = width - left.cell_length - len(clock) - 1
    return left if gap < 1 else Content.assemble(left, " " * gap, (clock, "$foreground-muted"), " ")


def link_mark(view: View) -> Content:
    """The state of the link in a word, with the age of the newest reading or the time to the next try."""
    link = view.state.link
    if link.state is LinkState.LIVE:
        newest: Timed[Any] | None = view.state.gpus or view.state.host or view.state.jobs
        kind, age = freshness(view.state, newest, view.now)
        if kind is Freshness.STALE:
            return Content.styled(f"STALE {fmt.age(age)}", "bold $text-warning")
        return Content.styled("LIVE" if age is None else f"LIVE {fmt.age(age)}", "bold $text-success")
    if link.state is LinkState.WAITING:
        wait = "" if link.retry_at is None else f", next try in {fmt.duration(max(0.0, link.retry_at - view.now))}"
        return Content.styled(f"DOWN{wait} (R: now)", "bold $text-error")
    if link.state is LinkState.CONNECTING:
        attempt = f" (try {link.attempt})" if link.attempt > 1 else ""
        return Content.styled(f"CONNECTING{attempt}", "bold $text-warning")
    if link.state is LinkState.ASKING:
        return Content.styled("ASKS YOU", "bold $text-warning")
    words = {LinkState.UNKNOWN_HOST_KEY: "UNKNOWN HOST KEY", LinkState.FAILED: "NO CONNECTION"}
    style = "bold $text-error" if link.state in words else "$foreground-muted"
    return Content.styled(words.get(link.state, link.state.value.upper()), style)


def _banners(view: View) -> list[Content]:
    names = []
    if view.state.readonly:
        names.append(("READ-ONLY", "bold $text-warning reverse"))
    gpus = view.state.gpus
    if gpus is not None and gpus.value.simulated:
        names.append(("SIMULATED GPUs", "bold $text-warning"))
    elif view.state.simulated:
        names.append(("SIMULATED", "bold $text-warning"))
    if any(job.simulated for job in view.state.live_jobs()):
        names.append(("REPLAY", "bold $text-warning"))
    if view.paused:
        names.append(("PAUSED, p goes on", "bold $text-warning reverse"))
    return [Content.styled(f" {name} " if "reverse" in style else name, style) for name, style in names]


def _facts(view: View) -> list[Content]:
    facts = []
    state = view.state
    running = len(state.live_jobs())
    verb = "runs" if running == 1 else "run"
    if state.jobs is not None:
        facts.append(Content("no job runs" if not running else f"{fmt.plural(running, 'job')} {verb}"))
    if state.gpus is not None and state.gpus.value.gpus:
        snapshot = state.gpus.value
        facts.append(Content(shorten(gpu_summary(snapshot), 40)))
        if snapshot.driver_version:
            facts.append(Content(f"driver {clean(snapshot.driver_version, 20)}"))
    filesystem = state.disk.value.filesystem if state.disk else None
    filesystem = filesystem or (state.host.value.workspace if state.host else None)
    if filesystem is not None:
        full_in = state.disk.value.full_in if state.disk else None
        full = f", {fmt.duration_in_words(full_in)} to full" if full_in is not None else ""
        facts.append(Content(f"disk {fmt.gb(filesystem.free)} free{full}"))
    return facts
