"""The model load: phases with their seconds, the counted progress, and how it ended."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.adopted import serving_words
from eagle_console.outlook import range_words
from eagle_console.state import Timed
from eagle_console.text import clean, shorten
from eagle_console.tui import job_words
from eagle_console.tui.view import View
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import field, prose
from remote.protocol import jobs
from remote.protocol.jobs import Job
from remote.protocol.progress import Failure, Phase

STAGE = "serve"
_SHARE_FROM, _SHARE_BAR = 70, 24
"""From this width on a phase has a bar of its share, of so many cells."""

_FACTS_ROOM = 4
"""Lines below the ranks that stay for the job's id and its command line."""

_SILENT_SECONDS = 15.0
"""The runner writes its state at least every few seconds; this long without a word is worth saying."""


class LoadPanel(Panel):
    """The newest start of the stage ``serve``, or how to begin one."""

    TARGET = "load"
    COMPLETE = False
    """Whether every phase has a line of its own, whatever the height."""

    def heading(self, view: View) -> str:
        job = view.state.newest(STAGE)
        if job is None:
            return "6 Model load"
        model = posixpath.basename(str(job.parameters.get("verifier") or "").rstrip("/"))
        parallel = job.parameters.get("tensor_parallel")
        return "  ".join(["6 Model load", *([model] if model else []), *([f"TP {parallel}"] if parallel else [])])

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.jobs

    def body(self, view: View, width: int, height: int) -> list[Content]:
        if view.state.jobs is None:
            problem = view.state.problems.get("jobs", "")
            return prose(clean(problem), width, "$text-error")
        job = view.state.newest(STAGE)
        if job is None:
            problem = view.state.jobs.value.problem
            return prose(clean(problem), width, "$text-error") if problem else _empty(view, width)
        serving = _serving(view, job, width)
        return [*job_lines(view, job, width, height - len(serving), self.COMPLETE), *serving]


class FullLoadPanel(LoadPanel):
    """The same with all phases and the command line, for the screen of its own."""

    COMPLETE = True

    def body(self, view: View, width: int, height: int) -> list[Content]:
        lines = super().body(view, width, height)
        job = view.state.newest(STAGE)
        if job is None:
            return lines
        facts = [
            *field("job", clean(job.id, 200), width, label=10),
            *field("command", clean(job.command_line), width, label=10),
            *field("log", clean(job.log), width, label=10),
            *field("pids", ", ".join(str(pid) for pid in job.pids[:20]), width, label=10),
            *field("started", fmt.clock(job.started, seconds=True) if job.started else "", width, label=10),
            *_figures(job, width),
        ]
        ranks = rank_lines(job, width, view.ascii, height - len(lines) - _FACTS_ROOM)
        return [*lines, *([Content(""), *ranks] if ranks else []), Content(""), *facts]


def rank_lines(job: Job, width: int, ascii: bool, room: int) -> list[Content]:
    """The file of the checkpoint that each worker process is in; as many as there is room for."""
    ranks = job.progress.ranks if job.state in jobs.LIVE_STATES else ()
    lines = []
    for rank in ranks:
        place = f"{rank.place}/{rank.total}"
        head = f"pid {rank.pid:<8} file {place:>9} "
        name = shorten(clean(rank.name, 200), max(0, width - len(head) - _SHARE_BAR - 2))
        bar = meter(rank.place / rank.total if rank.total > 0 else None, _SHARE_BAR, "$secondary", ascii)
        lines.append(Content.assemble((head, "$foreground-muted"), bar, f"  {name}"))
    if len(lines) <= room:
        return lines
    left = len(lines) - max(0, room - 1)
    return [*lines[: max(0, room - 1)], Content.styled(f"and {left} more", "$foreground-muted")] if room > 0 else []


def _serving(view: View, job: Job, width: int) -> list[Content]:
    """What a ready server does; known of adopted ones."""
    record = view.state.adopted_record(job.id)
    if record is None or record.serving is None:
        return []
    return [Content(shorten(words, width)) for words in serving_words(record.serving)]


def job_lines(view: View, job: Job, width: int, height: int, complete: bool = False) -> list[Content]:
    """A load's state, phases, progress and end, as much as fits the height."""
    head = _headline(view, job, width)
    tail = _ending(job, width) if job.state in (jobs.FAILED, jobs.GONE) else _counted(job, width, view.ascii)
    if job.silent is not None and job.silent > _SILENT_SECONDS:
        words = f"The runner has said nothing for {fmt.duration_in_words(job.silent)}."
        tail += prose(words, width, "$text-warning")
    if job.note:
        tail += prose(clean(job.note), width, "$text-warning")
    # A ready server is in no phase any more: the one that has no end is its readiness, which the first line shows.
    phases = [phase for phase in job.progress.phases if phase.end is not None or not job.progress.ready]
    seconds = view.seconds(job)
    room = height - len(head) - len(tail)
    if complete or len(phases) <= room:
        table = [_phase_line(job, phase, seconds, width, view.ascii, complete) for phase in phases]
        gap = [Content("")] if table and (complete or len(phases) + 2 <= room) else []
        return [*head, *gap, *table, *(gap if tail else []), *tail]
    return [*head, *_phases_in_a_row(job, phases, seconds, width, max(1, room)), *tail]


def _headline(view: View, job: Job, width: int) -> list[Content]:
    seconds = view.seconds(job)
    state = job_words.state_content(job)
    mark = Content.styled("  REPLAY", "bold $text-warning") if job.simulated else Content("")
    if job.state == jobs.READY:
        load = fmt.duration(job_words.loading_seconds(job, seconds))
        return [
            Content.assemble(state, "  ", (job_words.address(job), "bold"), mark),
            Content.styled(shorten(f"loaded in {load}, up {fmt.duration(seconds)}", width), "$foreground-muted"),
        ]
    if job.state in jobs.LIVE_STATES:
        return [Content.assemble(state, f"  {fmt.duration(seconds)}", mark)]
    ended = f" at {fmt.clock(job.ended)}" if job.ended else ""
    return [
        Content.assemble(state, f"  {job_words.exit_text(job)}  after {fmt.duration(seconds)}{ended}", mark),
    ]


def _phase_line(
    job: Job, phase: Phase, seconds: float | None, width: int, ascii: bool, with_share: bool = False
) -> Content:
    """A phase with its seconds; with its share of the time so far as a bar where there is room for one."""
    running = phase.end is None and job.state in jobs.LIVE_STATES
    sign = (">" if ascii else "▶") if running else ("+" if ascii else "✓") if phase.end is not None else "-"
    lasted = _phase_seconds(phase, seconds)
    style = "bold" if running else "$foreground-muted"
    text = f"{sign} {clean(phase.name, 40):<20} {fmt.duration(lasted):>8}"
    detail = clean(phase.detail, 200) if width >= 50 else ""
    whole = job_words.loading_seconds(job, seconds)
    if not with_share or width < _SHARE_FROM or not whole or lasted is None:
        return Content.styled(shorten(f"{text}  {detail}".rstrip(), width), style)
    share = min(1.0, lasted / whole)
    bar = meter(share, _SHARE_BAR, "$primary" if running else "$secondary", ascii)
    rest = shorten(f" {fmt.percent(100 * share):>4}  {detail}".rstrip(), width - len(text) - _SHARE_BAR - 2)
    return Content.assemble((text, style), "  ", bar, (rest, style))


def _phases_in_a_row(
    job: Job, phases: Sequence[Phase], seconds: float | None, width: int, height: int
) -> list[Content]:
    pieces = []
    for phase in phases:
        running = phase.end is None and job.state in jobs.LIVE_STATES
        name = clean(phase.name, 40)
        time = fmt.duration(_phase_seconds(phase, seconds))
        pieces.append(
            Content.styled(
                f"{name.upper() if running else name}\u00a0{time}", "bold" if running else "$foreground-muted"
            )
        )
    return Content("  ").join(pieces).wrap(width)[-height:] if pieces else []


def _phase_seconds(phase: Phase, seconds: float | None) -> float | None:
    if phase.end is not None:
        return phase.end - phase.start
    return None if seconds is None else max(0.0, seconds - phase.start)


def _counted(job: Job, width: int, ascii: bool) -> list[Content]:
    progress = job.progress
    counted = fmt.done_of(progress.done, progress.total, clean(progress.unit, 20))
    eta = progress.eta if not progress.ready and job.state in jobs.LIVE_STATES else None
    lines = []
    if eta is not None:  # the bar is that of the whole start: shards are only a part of it
        numbers = shorten(f" {range_words(eta)}", max(0, width - 8))
        lines = [Content.assemble(meter(eta.share, width - len(numbers), "$primary", ascii), numbers)]
        lines += prose(clean(eta.source, 200), width, "$foreground-muted")
        percent = (
            f"{fmt.percent(progress.percent)} of {clean(progress.phase, 40)}" if progress.percent is not None else ""
        )
        rate = f"{fmt.gb(progress.read_rate)}/s from storage" if progress.read_rate is not None else ""
        words = "  ".join(word for word in (counted, percent, rate) if word)
        lines += [Content(shorten(words, width))] if words else []
        lines += prose(clean(progress.bottleneck, 400), width, "$text-warning")
    elif progress.percent is not None and not progress.ready:
        numbers = f" {fmt.percent(progress.percent):>4}  {counted}".rstrip()
        numbers = shorten(numbers, max(0, width - 8))
        lines = [Content.assemble(meter(progress.percent / 100, width - len(numbers), "$primary", ascii), numbers)]
    elif counted:
        lines = [Content(shorten(counted, width))]
    return lines + prose(clean(progress.detail, 400), width, "$foreground-muted")


def _ending(job: Job, width: int) -> list[Content]:
    failure = job.failure
    if failure is None:
        return prose("Gone, no reason in the log. Key 3 shows the log.", width)
    return failure_lines(failure, width)


def failure_lines(failure: Failure, width: int) -> list[Content]:
    """Class, cause, remedy and the log line that says so."""
    return [
        *field("class", clean(failure.klass, 100), width, "bold $text-error"),
        *field("cause", clean(failure.cause), width, "bold"),
        *field("remedy", clean(failure.remedy), width),
        *field("line", clean(failure.line, 400), width, "$foreground-muted"),
    ]


def _figures(job: Job, width: int) -> list[Content]:
    figures = job.progress.figures or {}
    return field(
        "figures", ", ".join(f"{clean(name, 60)} {value:g}" for name, value in figures.items()), width, label=10
    )


def _empty(view: View, width: int) -> list[Content]:
    verifier = view.profile.verifier
    what = f"vLLM with {clean(verifier, 200)}" if verifier else "vLLM (this profile names no verifier yet)"
    return [
        *prose("No model was loaded here by eagle-console.", width),
        Content(""),
        *prose(f"s starts {what}.", width, "$foreground-muted"),
        *prose(f"Or:  eagle-console run {clean(view.profile.name, 60)} serve --follow", width, "$foreground-muted"),
    ]
