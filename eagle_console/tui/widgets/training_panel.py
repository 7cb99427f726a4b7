"""Training: the newest run, ours or one that was started by hand; else how a run is begun."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.adopted import NOT_OURS, TRAIN
from eagle_console.outlook import range_words
from eagle_console.state import HostState, Timed
from eagle_console.text import clean, shorten
from eagle_console.training_figures import TRAINING_STAGES, training_of, with_course
from eagle_console.tui import job_words
from eagle_console.tui.view import View
from eagle_console.tui.widgets.load_panel import job_lines
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.training_lines import place, rest_lines, training_lines
from remote.protocol.adopted import is_adopted
from remote.protocol.jobs import DONE, FAILED, GONE, LIVE_STATES, Job
from remote.protocol.progress import Eta
from remote.protocol.series import TrainingSeries
from remote.protocol.training import Training

STAGE = TRAIN


def training_jobs(state: HostState) -> list[Job]:
    """Every job that trains, and every training run that is not ours; the live ones first, then the newest."""
    jobs = state.jobs.value.jobs if state.jobs else ()
    found = [job for job in (*jobs, *state.adopted_jobs()) if job.stage in TRAINING_STAGES]
    return sorted(found, key=lambda job: (job.state not in LIVE_STATES, -job.created))


def shown_training(state: HostState, job: Job) -> Training | None:
    """What is known of the run of a job: of an adopted one its log's word, of ours its figures."""
    record = state.adopted_record(job.id)
    return record.training if record is not None else training_of(job)


class TrainingPanel(Panel):
    """The newest run, or how to begin one."""

    TARGET = "training"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.course: TrainingSeries | None = None

    def job(self, view: View) -> Job | None:
        """The job whose run is shown."""
        return next(iter(training_jobs(view.state)), None)

    def heading(self, view: View) -> str:
        job = self.job(view)
        if job is None:
            return "7 Training"
        record = view.state.adopted_record(job.id)
        name = record.name if record is not None else str(job.parameters.get("run") or "")
        return f"7 Training  {clean(name, 40)}".rstrip()

    def source(self, view: View) -> Timed[Any] | None:
        job = self.job(view)
        return view.state.adopted if job is not None and is_adopted(job.id) else view.state.jobs

    def body(self, view: View, width: int, height: int) -> list[Content]:
        job = self.job(view)
        if job is None:
            return [] if view.state.jobs is None else _empty(view, width, height)
        training = shown_training(view.state, job)
        if training is None or job.state in (FAILED, GONE):
            return job_lines(view, job, width, height)
        if self.course is not None and self.course.job == job.id:
            training = with_course(training, self.course)
        share = _share(job)
        head = [_head(view, job, width)] if height > 3 else []  # the job strip says it too
        outlook = _outlook(_eta(job), width) if height > 6 else []
        room = height - len(head) - len(outlook)
        return [*head, *training_lines(training, share, width, room, view.ascii), *outlook]


class FullTrainingPanel(TrainingPanel):
    """The run that the screen chose, with all figures; the curves are beside it."""

    TARGET = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.job_id: str | None = None

    def job(self, view: View) -> Job | None:
        chosen = view.state.job(self.job_id) if self.job_id else None
        return chosen or super().job(view)

    def body(self, view: View, width: int, height: int) -> list[Content]:
        job = self.job(view)
        training = shown_training(view.state, job) if job is not None else None
        if job is None or training is None or job.state in (FAILED, GONE):
            return super().body(view, width, height)
        share = _share(job)
        numbers = f" {fmt.percent(None if share is None else 100 * share)}"
        eta = _eta(job)
        if eta is not None:
            numbers = shorten(f" {fmt.percent(100 * eta.share)} {range_words(eta, DONE)}", max(8, width // 2))
            share = eta.share
        head, where = _head(view, job, width), place(training)
        together = Content.assemble(head, "  ", where)
        lines = [together] if together.cell_length <= width else [head, where]
        lines.append(Content.assemble(meter(share, max(0, width - len(numbers)), "$primary", view.ascii), numbers))
        if training.problem:
            lines += prose(clean(training.problem), width, "bold $text-error")
        return [*lines, *rest_lines(training, width), *_outlook(eta, width, with_range=False)]


def _share(job: Job) -> float | None:
    return job.progress.percent / 100 if job.progress.percent is not None else None


def _head(view: View, job: Job, width: int) -> Content:
    """The state and its time; of what is not ours also that, and whose it is."""
    record = view.state.adopted_record(job.id)
    who = ""
    if record is not None:
        who = f"  {NOT_OURS}" + (f", {clean(record.user, 40)}'s" if record.user else "")
    state = job_words.state_content(job)
    rest = shorten(f"  {fmt.duration(view.seconds(job))}{who}", max(0, width - state.cell_length))
    mark = Content.styled("  REPLAY", "bold $text-warning") if job.simulated else Content("")
    return Content.assemble(state, (rest, "$foreground-muted"), mark)


def _eta(job: Job) -> Eta | None:
    """When the run will be done."""
    return job.progress.eta if job.state in LIVE_STATES else None


def _outlook(eta: Eta | None, width: int, with_range: bool = True) -> list[Content]:
    """When it will be done and where that comes from."""
    if eta is None:
        return []
    words = f"{range_words(eta, DONE)}, {clean(eta.source, 200)}" if with_range else clean(eta.source, 200)
    return prose(words, width, "$foreground-muted")


def _empty(view: View, width: int, height: int) -> list[Content]:
    command = f"eagle-console run {clean(view.profile.name, 60)} {STAGE} --follow"
    return [
        *prose("No training run was started here by eagle-console.", width),
        *prose(f"Key 2, then enter on {STAGE}. Or:  {command}", width, "$foreground-muted"),
    ][: max(1, height)]
