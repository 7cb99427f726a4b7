"""The log of one job: follows its end, filters, searches, goes from one problem to the next."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content

from eagle_console import format as fmt
from eagle_console.client import HostClient, Session
from eagle_console.text import clean, shorten
from eagle_console.tui import job_words
from eagle_console.tui.actions import LOGS, bindings
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.filter_input import FilterInput
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.log_view import LogView
from remote.protocol.jobs import Job

_FIRST_TAIL = 2_000
"""Lines of the log that are read when it is opened."""


class LogsScreen(ConsoleScreen):
    """One log. After a lost connection it goes on where it was: the link's subscriptions move by themselves."""

    NAME = LOGS
    BINDINGS = bindings(LOGS)

    def __init__(self) -> None:
        super().__init__()
        self._job_id: str | None = None
        self._reading: tuple[str, Session] | None = None
        self._trouble = ""
        self._begin: int | None = None

    def compose_body(self) -> ComposeResult:
        yield Lines(id="log-head")
        yield LogView(id="log")
        yield FilterInput()

    def on_mount(self) -> None:
        self.query_one(LogView).focus()
        super().on_mount()

    def show_job(self, job_id: str) -> None:
        """Shows the log of a job instead of the one shown before."""
        self._job_id = job_id
        if self.is_mounted:
            self.paint(self.console_app.view())

    def paint(self, view: View) -> None:
        if self._job_id is None and view.state.jobs is not None:
            adopted = tuple(job for job in view.state.adopted_jobs() if job.log)
            shown = (*view.state.live_jobs(), *adopted, *view.state.jobs.value.jobs)
            self._job_id = shown[0].id if shown else None
        super().paint(view)
        self._read_if_needed()
        self.query_one("#log-head", Lines).set_lines([self._head(view)])

    def selected_job(self) -> Job | None:
        return self.console_app.view().state.job(self._job_id) if self._job_id else None

    def action_filter(self) -> None:
        self.query_one(FilterInput).open()

    async def action_back(self) -> None:
        log = self.query_one(LogView)
        if self.query_one(FilterInput).clear_filter():
            return
        if log.searched:
            log.search("")
            self.paint(self.console_app.view())
        else:
            await super().action_back()

    def action_next_match(self) -> None:
        self._find(1)

    def action_previous_match(self) -> None:
        self._find(-1)

    def action_next_problem(self) -> None:
        self._find_problem(1)

    def action_previous_problem(self) -> None:
        self._find_problem(-1)

    def action_copy_lines(self) -> None:
        lines = self.query_one(LogView).marked_or_in_sight
        if not lines:
            self.console_app.say("There is no line to copy.", "warning")
            return
        self.console_app.copy_to_clipboard("\n".join(lines))
        self.console_app.say(f"Copied {fmt.plural(len(lines), 'line')}. Some terminals ignore this (OSC 52).")

    def action_follow(self) -> None:
        log = self.query_one(LogView)
        log.follow(not log.following)
        self.paint(self.console_app.view())

    def action_wrap(self) -> None:
        log = self.query_one(LogView)
        log.set_wrapped(not log.wrapped)
        self.paint(self.console_app.view())

    def action_first_error(self) -> None:
        log = self.query_one(LogView)
        job = self.selected_job()
        number = log.buffer.first_error(job.failure.line if job and job.failure else "")
        if number is None:
            self.console_app.say("No error in the lines that are shown.")
        else:
            log.jump_to(number)
            self.paint(self.console_app.view())

    def action_older(self) -> None:
        self._step(1)

    def action_newer(self) -> None:
        self._step(-1)

    @on(FilterInput.Applied)
    def _filter_changed(self, event: FilterInput.Applied) -> None:
        self.query_one(LogView).set_filter(event.text)
        self.paint(self.console_app.view())

    @on(FilterInput.Left)
    def _filter_left(self) -> None:
        self.query_one(LogView).focus()

    def _find(self, step: int) -> None:
        """The next line with the text that ``/`` was given, among all lines: in its context."""
        log, field = self.query_one(LogView), self.query_one(FilterInput)
        if field.value:
            log.search_filtered(field.value)
            field.clear_filter()
        if not log.searched:
            self.console_app.say("Type a text with / first; n then goes from one line with it to the next.")
        elif not log.next_match(step):
            self.console_app.say(f"No line with {log.searched}.", "warning")
        self.paint(self.console_app.view())

    def _find_problem(self, step: int) -> None:
        if not self.query_one(LogView).next_problem(step):
            self.console_app.say("No further error or warning that way.")
        self.paint(self.console_app.view())

    def _step(self, step: int) -> None:
        state = self.console_app.view().state
        ids = [job.id for job in state.jobs.value.jobs] if state.jobs else []
        ids += [job.id for job in state.adopted_jobs() if job.log]
        if self._job_id in ids:
            place = ids.index(self._job_id) + step
            if 0 <= place < len(ids):
                self.show_job(ids[place])

    def _read_if_needed(self) -> None:
        client = self.console_app.client
        if self._job_id is None or client is None or self._reading == (self._job_id, client.session):
            return
        same_job = self._reading is not None and self._reading[0] == self._job_id
        self._reading = (self._job_id, client.session)
        self._trouble = ""
        log = self.query_one(LogView)
        if not same_job:
            log.following = True
        log.reset()
        self._begin = None
        self.run_worker(self._follow(self._job_id, client), group="log", exclusive=True)

    async def _follow(self, job_id: str, client: HostClient) -> None:
        log = self.query_one(LogView)
        try:
            async for chunk in client.follow_log(job_id, _FIRST_TAIL):
                if self._begin is None:
                    self._begin = chunk.offset
                log.append(chunk.lines)
        except HOST_ERRORS as error:
            self._trouble = explain(error)

    def _head(self, view: View) -> Content:
        width = self.query_one("#log-head").size.width
        job = view.state.job(self._job_id) if self._job_id else None
        if self._job_id is None:
            return Content.styled(" No job has a log yet: key 2 shows what can be started.", "$foreground-muted")
        log = self.query_one(LogView)
        marks = ["following" if log.following else "not following (f)"]
        if log.wrapped:
            marks.append("wrapped")
        shown, total = len(log.buffer.shown), log.buffer.total
        lines = ("the last " if self._begin or log.buffer.dropped else "") + fmt.plural(total, "line")
        if shown != total:
            lines = f"{fmt.count(shown)} of {lines}"
        if log.searched:
            marks.append(f"n: {shorten(clean(log.searched), 24)}")
        if log.buffer.pattern:
            marks.append(f"filter {shorten(clean(log.buffer.pattern), 24)}")
        state = Content.assemble("  ", job_words.state_content(job)) if job else Content("")
        end = Content.styled(f"{lines}, {', '.join(marks)} ", "$foreground-muted")
        trouble = Content.styled(f"  {self._trouble}", "bold $text-error") if self._trouble else Content("")
        name_width = max(12, width - end.cell_length - state.cell_length - trouble.cell_length - 4)
        left = Content.assemble(" ", (shorten(clean(self._job_id), name_width), "bold"), state, trouble)
        gap = width - left.cell_length - end.cell_length
        return Content.assemble(left, " " * max(2, gap), end)
