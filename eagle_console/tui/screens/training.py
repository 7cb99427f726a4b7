"""Training in full: the curves of a run over its steps, its figures, and its checkpoints as they appear."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console.client import HostClient
from eagle_console.disk_words import checkpoint_marks, main_reason, number
from eagle_console.state import Timed
from eagle_console.text import clean
from eagle_console.tui.actions import TRAINING, bindings
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.curves import STALE_COURSE, AcceptancePanel, CurvePanel, LossPanel
from eagle_console.tui.widgets.reason_lines import VERDICT_STYLES
from eagle_console.tui.widgets.table import Column, Row, Table
from eagle_console.tui.widgets.training_panel import STAGE, FullTrainingPanel, training_jobs
from remote.protocol.artifacts import Checkpoint
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job
from remote.protocol.series import VALIDATION_LOSS, VALIDATION_PREDICTED, SavedCheckpoint, TrainingSeries

_COLUMNS = (
    Column("name", 12),
    Column("step", 9, right=True),
    Column("saved", 8, right=True, least=70),
    Column("size", 7, right=True),
    Column("val loss", 8, right=True),
    Column("predicts", 8, right=True),
    Column("", 11, least=90),
    Column("verdict", 7),
    Column("because", 0, least=110),
)


@dataclass(frozen=True)
class Picture:
    """The course of a run, and what triage makes of its checkpoints where that is known, by the names of their folders:
    the records keep the paths of the time when they were saved."""

    series: TrainingSeries
    judged: dict[str, Checkpoint]


class TrainingScreen(AskingScreen[Picture]):
    """One run. ``[`` and ``]`` go to older and newer ones; what is shown survives a lost connection."""

    NAME = TRAINING
    BINDINGS = bindings(TRAINING)
    REFRESH = 4.0
    STALE = STALE_COURSE

    def __init__(self) -> None:
        super().__init__()
        self._chosen: str | None = None
        self._asked_for = ""

    def compose_body(self) -> ComposeResult:
        yield FullTrainingPanel(id="run")
        with Horizontal(id="curves"):
            yield LossPanel(id="loss")
            yield AcceptancePanel(id="acceptance")
        yield Table(_COLUMNS, id="saved")

    def on_mount(self) -> None:
        self.query_one(FullTrainingPanel).focus()
        super().on_mount()

    def show_job(self, job_id: str) -> None:
        """Shows the run of a job instead of the newest."""
        self._chosen = job_id
        if self.is_mounted:
            self.paint(self.console_app.view())

    def selected_job(self) -> Job | None:
        state = self.console_app.view().state
        chosen = state.job(self._chosen) if self._chosen else None
        return chosen or next(iter(training_jobs(state)), None)

    async def ask(self, client: HostClient) -> Picture:
        series = await client.series(self._asked_for)
        try:
            found = await client.checkpoints(series.folder) if series.folder and series.checkpoints else None
        except RequestError:  # a folder outside the workspace is none that triage judges
            found = None
        return Picture(series, {item.name: item for item in found.checkpoints} if found else {})

    def look_again(self) -> None:
        if self._asked_for:
            super().look_again()

    def paint(self, view: View) -> None:
        job = self.selected_job()
        if job is not None and job.id != self._asked_for:
            self._asked_for, self.answer, self.trouble = job.id, None, ""
            self.look_again()
        answer = self.answer if self.answer is not None and self.answer.value.series.job == self._asked_for else None
        self.query_one(FullTrainingPanel).job_id = job.id if job is not None else None
        for panel in self.query(CurvePanel):
            panel.course = Timed(answer.value.series, answer.received) if answer is not None else None
            panel.trouble = self.trouble
        super().paint(view)
        table = self.query_one(Table)
        table.set_rows(_rows(answer.value, view) if answer is not None else [])
        table.set_title(self._title(answer.value if answer is not None else None))

    def action_start(self) -> None:
        self.console_app.start_stage(STAGE)

    async def action_open(self) -> None:
        job = self.selected_job()
        if job is not None:
            await self.console_app.show_log(job.id)

    def action_compare(self) -> None:
        self.console_app.compare(self.selected_job())

    @on(DataTable.RowSelected)
    async def _row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        await self.action_open()

    def action_older(self) -> None:
        self._step(1)

    def action_newer(self) -> None:
        self._step(-1)

    def _step(self, step: int) -> None:
        ids = [job.id for job in training_jobs(self.console_app.view().state)]
        job = self.selected_job()
        if job is not None and job.id in ids:
            place = ids.index(job.id) + step
            if 0 <= place < len(ids):
                self.show_job(ids[place])

    def _title(self, picture: Picture | None) -> str:
        if picture is None:
            return "Checkpoints"
        series = picture.series
        words = [fmt.plural(len(series.checkpoints), "checkpoint") if series.checkpoints else "No checkpoint yet"]
        if not series.complete:
            words.append("its records are still being read")
        if series.broken_since is not None:
            words.append(f"THE LOSS IS NO NUMBER since step {fmt.count(series.broken_since)}")
        return "  ".join(words)


def _rows(picture: Picture, view: View) -> list[Row]:
    """The newest checkpoint first."""
    series = picture.series
    values = {item.name: dict(zip(item.steps, item.values)) for item in series.series}
    return [_row(saved, picture.judged.get(_name(saved)), values, view) for saved in reversed(series.checkpoints)]


def _row(
    saved: SavedCheckpoint, judged: Checkpoint | None, values: dict[str, dict[int, float | None]], view: View
) -> Row:
    at = saved.step if saved.step is not None else -1
    loss, predicted = (values.get(name, {}).get(at) for name in (VALIDATION_LOSS, VALIDATION_PREDICTED))
    if judged is not None:
        loss = judged.validation_loss if loss is None else loss
        predicted = judged.predicted_acceptance if predicted is None else predicted
    word = judged.artifact.verdict.word if judged is not None else ""
    cells = (
        clean(_name(saved), 100),
        fmt.count(saved.step),
        fmt.moment(saved.wall, view.wall),
        fmt.gb(saved.bytes),
        number(loss, 3),
        number(predicted, 2),
        checkpoint_marks(judged) if judged is not None else "",
        clean(word, 20) or fmt.UNKNOWN,
        clean(main_reason(judged.artifact.verdict), 300) if judged is not None else "",
    )
    return Row(saved.path, cells, styled=7, style=VERDICT_STYLES.get(word, ""))


def _name(saved: SavedCheckpoint) -> str:
    return posixpath.basename(saved.path.rstrip("/"))
