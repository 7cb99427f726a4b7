"""Stages and jobs: what can be started and why not, what runs and what ran."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console.adopted import NOT_OURS
from eagle_console.client import HostClient, Session
from eagle_console.text import clean
from eagle_console.tui import job_words
from eagle_console.tui.actions import STAGES, bindings
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.check_lines import VERDICT_STYLES, VERDICT_WORDS, check_lines
from eagle_console.tui.widgets.filter_input import FilterInput, matches
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.prose import prose
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.adopted import is_adopted
from remote.protocol.jobs import Job
from remote.protocol.stages import StageInfo

REFRESH_SECONDS = 10.0
"""How often the preflight verdicts are asked for again while the screen is shown."""

_STAGE_COLUMNS = (Column("stage", 12), Column("verdict", 8), Column("kind", 8), Column("what it does", 0))
_JOB_COLUMNS = (
    Column("job", 0),
    Column("state", 12),
    Column("progress", 14, least=90),
    Column("time", 9, right=True),
    Column("ended by", 9),
    Column("started", 8, right=True, least=70),
)


class StagesScreen(ConsoleScreen):
    """The catalogue with its verdicts over the jobs. ``enter`` opens a stage's form or a job's log.

    Between them stands what there is to say about the row of the table that has the focus.
    """

    NAME = STAGES
    BINDINGS = bindings(STAGES)

    def __init__(self) -> None:
        super().__init__()
        self._stages: tuple[StageInfo, ...] = ()
        self._trouble = ""
        self._marked_job: str | None = None
        self._asked: tuple[Session, tuple[str, ...]] | None = None

    def compose_body(self) -> ComposeResult:
        yield Table(_STAGE_COLUMNS, id="stage-table")
        yield Lines(id="stage-detail")
        yield Table(_JOB_COLUMNS, id="job-table")
        yield FilterInput()

    def on_mount(self) -> None:
        self._stage_table.set_title("Stages")
        self._stage_table.focus()
        self.set_interval(REFRESH_SECONDS, self._ask_if_shown)
        super().on_mount()

    @property
    def _stage_table(self) -> Table:
        return self.query_one("#stage-table", Table)

    @property
    def _job_table(self) -> Table:
        return self.query_one("#job-table", Table)

    def paint(self, view: View) -> None:
        super().paint(view)
        self._ask_if_needed(view)
        self._stage_table.styles.height = min(8, max(4, len(self._stages) + 3))
        self._stage_table.set_rows([_stage_row(stage) for stage in self._stages])
        rows = self._job_rows(view)
        self._job_table.set_rows(rows)
        self._job_table.set_title("Jobs" if rows or view.state.jobs is None else "No job")
        self._paint_detail()

    def selected_job(self) -> Job | None:
        key = self._job_table.selected_key
        return self.console_app.view().state.job(key) if key else None

    def selected_stage(self) -> StageInfo | None:
        key = self._stage_table.selected_key
        return next((stage for stage in self._stages if stage.name == key), None)

    def select_job(self, job_id: str) -> None:
        """Moves to a job in the table, for example one that was just started."""
        self._job_table.select(job_id)
        self._job_table.focus()

    async def action_open(self) -> None:
        if self.focused is self._job_table:
            job = self.selected_job()
            if job is not None:
                await self.console_app.show_log(job.id)
        else:
            self.action_start()

    def action_start(self) -> None:
        stage = self.selected_stage()
        if stage is not None:
            self.console_app.open_form(stage)
        else:
            self.console_app.say(self._trouble or "The stages are not known yet: there is no answer from the host.")

    def action_mark_job(self) -> None:
        job = self.selected_job()
        self._marked_job = None if job is None or job.id == self._marked_job else job.id
        self.paint(self.console_app.view())

    def action_compare(self) -> None:
        job = self.selected_job()
        marked = self.console_app.view().state.job(self._marked_job or "")
        self.console_app.compare(
            job, None if job is not None and marked is not None and marked.id == job.id else marked
        )

    def action_filter(self) -> None:
        self.query_one(FilterInput).open()

    async def action_back(self) -> None:
        if not self.query_one(FilterInput).clear_filter():
            await super().action_back()

    @on(DataTable.RowSelected)
    async def _row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        await self.action_open()

    @on(DataTable.RowHighlighted)
    @on(DescendantFocus)
    def _selection_changed(self) -> None:
        self._paint_detail()

    @on(FilterInput.Applied)
    def _filter_changed(self) -> None:
        self._job_table.set_rows(self._job_rows(self.console_app.view()))

    @on(FilterInput.Left)
    def _filter_left(self) -> None:
        self._job_table.focus()

    def _job_rows(self, view: View) -> list[Row]:
        pattern = self.query_one(FilterInput).value
        jobs = view.state.jobs.value.jobs if view.state.jobs else ()
        rows = [_job_row(view, job, job.id == self._marked_job) for job in (*view.state.adopted_jobs(), *jobs)]
        return [row for row in rows if matches(" ".join(row.cells), pattern)]

    def _paint_detail(self) -> None:
        detail = self.query_one("#stage-detail", Lines)
        width = max(20, detail.size.width)
        stage = self.selected_stage()
        job = self.selected_job() if self.focused is self._job_table else None
        if job is not None and (lines := job_words.why_lines(job, width)):
            detail.set_lines(lines)
        elif self._trouble:
            detail.set_lines(prose(self._trouble, width, "$text-error"))
        elif stage is None:
            asks = self.console_app.client is not None
            words = "Asking the host for its stages ..." if asks else "The stages come with a connection."
            detail.set_lines([Content.styled(words, "$foreground-muted")])
        else:
            command = prose(f"$ {clean(stage.command_line)}", width, "$foreground-muted") if stage.command_line else []
            detail.set_lines([*check_lines(stage.checks, width), *command[:3]])

    def _ask_if_needed(self, view: View) -> None:
        """Asks for the verdicts when the connection or the set of live jobs is another one: both change them."""
        client = self.console_app.client
        if client is None:
            return
        wanted = (client.session, tuple(job.id for job in view.state.live_jobs()))
        if wanted != self._asked:
            self._asked = wanted
            self.run_worker(self._ask(client), group="stages", exclusive=True)

    def _ask_if_shown(self) -> None:
        client = self.console_app.client
        if client is not None and self.is_current:
            self.run_worker(self._ask(client), group="stages", exclusive=True)

    async def _ask(self, client: HostClient) -> None:
        try:
            answer = await client.stages(self.console_app.profile.context)
        except HOST_ERRORS as error:
            self._trouble = explain(error)
        else:
            self._trouble, self._stages = "", answer.stages
        self.paint(self.console_app.view())


def _stage_row(stage: StageInfo) -> Row:
    replay = "REPLAY of " if stage.simulated else ""
    cells = (
        clean(stage.name, 60),
        VERDICT_WORDS.get(stage.verdict, clean(stage.verdict, 20)),
        clean(stage.kind, 20),
        replay + clean(stage.summary),
    )
    return Row(stage.name, cells, styled=1, style=VERDICT_STYLES.get(stage.verdict, ""))


def _job_row(view: View, job: Job, marked: bool = False) -> Row:
    cells = (
        ("* " if marked else "") + clean(job.id, 200),
        job_words.state_word(job),
        job_words.progress_text(job),
        fmt.duration(view.seconds(job)),
        NOT_OURS if is_adopted(job.id) else job_words.exit_text(job),
        fmt.moment(job.started if job.started is not None else job.created, view.wall),
    )
    return Row(job.id, cells, styled=1, style=job_words.state_style(job))
