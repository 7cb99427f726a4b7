"""The form that starts a stage: parameters checked as typed, the exact command line, and why it cannot start."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Static

from eagle_console.text import clean, fit
from eagle_console.tui import stage_form_model as model
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.widgets.check_lines import check_lines
from remote.protocol.jobs import Job
from remote.protocol.stages import VERDICT_OK, LaunchRequest, ParameterInfo, StageInfo

if TYPE_CHECKING:
    from eagle_console.tui.app import ConsoleApp

PREVIEW_DELAY_SECONDS = 0.3
"""Quiet time after a key stroke before the host is asked again what would run."""

_LABEL = 24


class StageForm(ModalScreen[Job | None]):
    """Dismissed with the started job, or None. Trying again after a lost answer starts no second job: same key."""

    HORIZONTAL_BREAKPOINTS = [(0, "-compact"), (100, "-wide")]  # noqa: RUF012 - Textual's own type
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel", show=False),
        Binding("ctrl+s", "start", "start", show=False),
        Binding("ctrl+l", "last_used", "last values", show=False),
    ]

    def __init__(self, stage: StageInfo) -> None:
        super().__init__()
        self._stage = stage
        self._plan: StageInfo | None = None
        self._trouble = ""
        self._starting = False
        self._key = uuid.uuid4().hex

    @property
    def console_app(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog -form", can_focus=False) as frame:
            frame.border_title = Content(clean(f"Start {self._stage.name}", 60))
            yield Static(Content.styled(clean(self._stage.summary), "$foreground-muted"), classes="dialog-text")
            with VerticalScroll(id="form-rows", can_focus=False):
                for number, info in enumerate(self._stage.parameters):
                    with Horizontal(classes="form-row"):
                        yield Static(Content.styled(fit(clean(info.name, 60), _LABEL), "bold"), classes="form-label")
                        suggester = SuggestFromList(_choices(info)) if _choices(info) else None
                        yield Input(
                            placeholder=model.default_text(info),
                            suggester=suggester,
                            id=f"value-{number}",
                            compact=True,
                        )
                        yield Static(Content(""), id=f"note-{number}", classes="form-note")
            yield Static(self._last_words(), id="form-last")
            yield Static(Content(""), id="form-help")
            yield Static(Content(""), id="form-command")
            yield Static(Content(""), id="form-checks")
            yield Static(Content(""), id="form-obstacle")
            with Horizontal(classes="dialog-answers"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Start (ctrl+s)", id="accept", compact=True, variant="primary", disabled=True)

    def _last_words(self) -> Content:
        """What was given the last time, which ctrl+l fills in."""
        words = "  ".join(f"{clean(name, 60)}={text}" for name, text in self._last_used().items())
        return (
            Content.assemble(("ctrl+l ", "bold"), (f"last used: {words}", "$foreground-muted"))
            if words
            else Content("")
        )

    def on_mount(self) -> None:
        for number, info in enumerate(self._stage.parameters):
            self.query_one(f"#note-{number}", Static).update(Content.styled(model.hint(info), "$foreground-muted"))
        (self.query(Input).first() if self._stage.parameters else self.query_one("#cancel")).focus()
        self._refresh_verdict()
        self._ask()
        self.set_interval(1.0, self._refresh_verdict)

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_last_used(self) -> None:
        """Fills in what the last job of the stage was given."""
        texts = self._last_used()
        for field in self.query(Input):
            _, info = self._field(field)
            field.value = texts.get(info.name, "")
        if not texts:
            self.console_app.say("No job of this stage is known here that was given other values than the defaults.")

    def _last_used(self) -> dict[str, str]:
        jobs = self.console_app.view().state.jobs
        return model.last_used(self._stage.parameters, jobs.value.jobs if jobs else (), self._stage.name)

    def action_start(self) -> None:
        if not self._obstacle() and not self._starting:
            self._starting = True
            self._refresh_verdict()
            self.run_worker(self._launch(), group="launch", exclusive=True)

    @on(Input.Changed)
    def _value_changed(self, event: Input.Changed) -> None:
        event.stop()
        number, info = self._field(event.input)
        wrong = model.check_value(info, event.value.strip())
        note = (
            Content.styled(wrong, "bold $text-error")
            if wrong
            else Content.styled(model.hint(info), "$foreground-muted")
        )
        self.query_one(f"#note-{number}", Static).update(note)
        event.input.set_class(bool(wrong), "-invalid")
        self._plan = None
        self._refresh_verdict()
        if not self._wrong():
            self._ask()

    @on(Input.Submitted)
    def _value_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_next()

    def on_descendant_focus(self) -> None:
        words = ""
        if isinstance(self.focused, Input):
            _, info = self._field(self.focused)
            words = f"{clean(info.name, 60)}: {clean(info.help)} ({model.hint(info)})"
        self.query_one("#form-help", Static).update(Content.styled(words, "$foreground-muted"))

    @on(Button.Pressed)
    def _button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "accept":
            self.action_start()
        else:
            self.dismiss(None)

    def _field(self, field: Input) -> tuple[int, ParameterInfo]:
        number = int((field.id or "value-0").removeprefix("value-"))
        return (number, self._stage.parameters[number])

    def _texts(self) -> dict[str, str]:
        return {self._field(field)[1].name: field.value.strip() for field in self.query(Input)}

    def _wrong(self) -> dict[str, str]:
        texts = self._texts()
        found = {info.name: model.check_value(info, texts[info.name]) for info in self._stage.parameters}
        return {name: message for name, message in found.items() if message}

    def _request(self) -> LaunchRequest:
        return LaunchRequest(
            stage=self._stage.name,
            parameters=model.given(self._stage.parameters, self._texts()),
            context=self.console_app.profile.context,
            requested_by=self.console_app.requested_by,
        )

    def _obstacle(self) -> str:
        view = self.console_app.view()
        return model.obstacle(self._wrong(), self._plan, view.connected, view.state.readonly, self._trouble)

    @work(group="preview", exclusive=True)
    async def _ask(self) -> None:
        client = self.console_app.client
        if client is None:
            return
        await asyncio.sleep(PREVIEW_DELAY_SECONDS)
        self._trouble = ""
        try:
            self._plan = await client.plan(self._request())
        except HOST_ERRORS as error:
            self._plan, self._trouble = None, explain(error)
        self._refresh_verdict()

    async def _launch(self) -> None:
        client = self.console_app.client
        if client is None:
            self._starting = False
            return
        try:
            job = await client.launch(self._request(), key=self._key)
        except HOST_ERRORS as error:
            self._starting, self._trouble = False, explain(error)
            self._refresh_verdict()
            return
        self.dismiss(job)

    def _refresh_verdict(self) -> None:
        if not self.query("#form-command"):
            return  # the form is being taken away: its timer and its answers may still come
        obstacle = self._obstacle()
        plan = self._plan
        width = max(20, self.query_one("#form-command").size.width)
        command = Content.assemble(("$ ", "$foreground-muted"), clean(plan.command_line)) if plan else Content("")
        self.query_one("#form-command", Static).update(command)
        notable = [check for check in plan.checks if check.verdict != VERDICT_OK] if plan else []
        self.query_one("#form-checks", Static).update(Content("\n").join(check_lines(notable, width)))
        words = "Starting ..." if self._starting else obstacle
        self.query_one("#form-obstacle", Static).update(Content.styled(words, "bold $text-warning"))
        self.query_one("#accept", Button).disabled = bool(obstacle) or self._starting


def _choices(info: ParameterInfo) -> tuple[str, ...]:
    """What a field can be completed to with the right arrow."""
    return tuple(clean(choice, 100) for choice in info.choices) or (("true", "false") if info.type == "bool" else ())
