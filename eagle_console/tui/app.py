"""The Textual application: takes the host's state from the link, paints it at a bounded rate, and carries out keys."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.worker import WorkerFailed

from eagle_console import format as fmt
from eagle_console import notices
from eagle_console.client import HostClient
from eagle_console.comparing import one_before
from eagle_console.config import ConfigError, HostProfile
from eagle_console.exit_codes import ExitCode
from eagle_console.link.connect import Target
from eagle_console.link.errors import LinkError
from eagle_console.link.supervisor import Supervisor
from eagle_console.person import person
from eagle_console.screen_settings import BELL, OSC9, ScreenSettings
from eagle_console.state import HostKeyQuestion, HostState, LinkState
from eagle_console.text import clean
from eagle_console.tui import comforts, stopping
from eagle_console.tui.actions import DASHBOARD, EVERYWHERE, HOSTS, LOGS, actions_at, bindings
from eagle_console.tui.fleet import Fleet, Host
from eagle_console.tui.keymap import parse as parse_keymap
from eagle_console.tui.link import HOST_ERRORS, Connect, HostLink, explain
from eagle_console.tui.messages import StateChanged
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.screens.checkpoints import CheckpointsScreen
from eagle_console.tui.screens.compare import CompareDialog
from eagle_console.tui.screens.dashboard import DashboardScreen
from eagle_console.tui.screens.dialogs import HostKeyDialog, QuitDialog
from eagle_console.tui.screens.gpus import GpusScreen
from eagle_console.tui.screens.help import HelpScreen
from eagle_console.tui.screens.hosts import HostsScreen
from eagle_console.tui.screens.journal import JournalScreen
from eagle_console.tui.screens.load import LoadScreen
from eagle_console.tui.screens.logs import LogsScreen
from eagle_console.tui.screens.prompt_dialog import PromptDialog
from eagle_console.tui.screens.stage_form import StageForm
from eagle_console.tui.screens.stages import StagesScreen
from eagle_console.tui.screens.training import TrainingScreen
from eagle_console.tui.screens.trash import TrashScreen
from eagle_console.tui.screens.triage import TriageScreen
from eagle_console.tui.view import View
from remote.protocol.jobs import Job
from remote.protocol.stages import StageInfo

_BETWEEN = "between two hosts"
"""An empty screen while those of one host are taken away: the shown one cannot be."""

_OF_ONE_HOST = ("form", "plan")
"""Workers that open a dialog about the host that was in front when they began."""

_PLAIN = ScreenSettings()

TICK_SECONDS = 0.25
"""The focused panel is painted at this rate while data comes; everything else less often (bytes are what it costs)."""
_ALL_EVERY = 2
"""Ticks between paintings of the whole screen while data comes."""
_AGES_EVERY = 4
"""Ticks between paintings of the whole screen while nothing comes: ages and countdowns still move."""


class ConsoleApp(App[None]):
    """The screen of one host at a time.

    :param profile: the profile of the host that is shown first.
    :param connect: makes its link; it is run for as long as the app is.
    :param clock: monotonic seconds, the clock of ``Timed.received``.
    :param wall: seconds since the epoch.
    :param ascii: only ASCII signs in bars and histories, whatever the settings say.
    :param others: further hosts; they are connected to when the screen of hosts is opened, or when they are shown.
    :param first: the screen that is shown first.
    :param settings: the look, the keys and the bell.
    :raises ConfigError: for a theme or keys that are not there.
    """

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "eagle-console"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = bindings(EVERYWHERE)
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "dashboard": DashboardScreen,
        "gpus": GpusScreen,
        "stages": StagesScreen,
        "logs": LogsScreen,
        "checkpoints": CheckpointsScreen,
        "triage": TriageScreen,
        "trash": TrashScreen,
        "journal": JournalScreen,
        "load": LoadScreen,
        "training": TrainingScreen,
        "hosts": HostsScreen,
    }
    DEFAULT_MODE = DASHBOARD

    def __init__(
        self,
        profile: HostProfile,
        connect: Connect,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        ascii: bool = False,
        others: Sequence[Host] = (),
        first: str = DASHBOARD,
        settings: ScreenSettings = _PLAIN,
    ) -> None:
        super().__init__()
        self._settings, self._own_keys = settings, parse_keymap(settings.keys)
        self._seen: dict[str, dict[str, str]] = {}
        self._fleet = Fleet((Host(profile, connect), *others), self._publish)
        self.profile = profile
        self.state = HostState(name=profile.name)
        self.requested_by = person()
        self.crash: Exception | None = None
        self._clock, self._wall, self._ascii = clock, wall, ascii or settings.ascii
        if settings.theme is not None:
            self._choose_theme(settings.theme)
        self.set_keymap(self._own_keys.textual())
        self._forwards = {name: comforts.Forwards() for name in self._fleet.names}
        self._first = first
        self._paused = False
        self._dirty = False
        self._ticks = 0
        self._key_dialog: HostKeyDialog | None = None
        self._prompt_dialog: PromptDialog | None = None

    @property
    def fleet(self) -> Fleet:
        """All hosts; the one in front is what every screen but that of the hosts shows."""
        return self._fleet

    @property
    def _link(self) -> HostLink:
        return self._fleet.link(self._fleet.front)

    @property
    def client(self) -> HostClient | None:
        """The operations of the connected host; None while there is no connection."""
        try:
            return self._link.client
        except LinkError:
            return None

    def view(self) -> View:
        """The picture of this moment."""
        return self._view(self.state, self.profile)

    def view_of(self, name: str) -> View:
        """The picture of another host at this moment."""
        state = self.state if name == self._fleet.front else self._fleet.state(name)
        profile = self._fleet.profile(name)
        return self._view(state, profile)

    def _view(self, state: HostState, profile: HostProfile) -> View:
        return View(state, profile, self._clock(), self._wall(), self._ascii, self._paused, self._own_keys)

    def say(self, text: str, severity: str = "information") -> None:
        """A short note in the corner. The text is never read as markup."""
        kind = "error" if severity == "error" else "warning" if severity == "warning" else "information"
        self.notify(clean(text), severity=kind, markup=False)  # type: ignore[arg-type]

    def _choose_theme(self, name: str) -> None:
        if name not in self.available_themes:
            raise ConfigError(
                f"[screen]: there is no theme {name!r}; there are: {', '.join(sorted(self.available_themes))}"
            )
        self.theme = name

    # The link

    def on_mount(self) -> None:
        self.set_class(self._ascii, "-ascii")
        self.run_worker(self._fleet.run_front(), group="link", name="link")
        self.set_interval(TICK_SECONDS, self._tick)
        self.call_later(self.action_go, self._first)

    def _publish(self, host: str, state: HostState) -> None:
        self.post_message(StateChanged(host, state))

    async def on_state_changed(self, message: StateChanged) -> None:
        self._dirty = True
        self._tell(message.host, message.state)
        await self._forwards[message.host].close_ended(self, message.state)
        if message.host != self._fleet.front:
            return
        link_changed = message.state.link != self.state.link
        self.state = message.state
        if link_changed:
            self.paint()
            self._ask_about_host_key()
            self._ask_for_the_link()

    def _tell(self, host: str, state: HostState) -> None:
        """Says what has happened to jobs since they were last seen, on any host, and rings."""
        if state.jobs is None:
            return
        jobs = state.jobs.value.jobs
        told = notices.news(self._seen.get(host, {}), jobs, host)
        self._seen[host] = notices.states(jobs)
        for notice in told:
            self.say(notice.text, "error" if notice.bad else "information")
            self._ring(notice.text)

    def _ring(self, text: str) -> None:
        if self._settings.notify == OSC9 and self._driver is not None:
            self._driver.write(notices.osc9(text, tmux="TMUX" in os.environ))
        elif self._settings.notify == BELL:
            self.bell()

    def _ask_about_host_key(self) -> None:
        question = self.state.link.question
        asks = self.state.link.state is LinkState.UNKNOWN_HOST_KEY
        if not asks and self._key_dialog is not None:
            if self._key_dialog.is_current:
                self._key_dialog.dismiss(False)
            self._key_dialog = None
        if asks and question is not None and self._key_dialog is None:
            self._key_dialog = HostKeyDialog(question)
            self.push_screen(self._key_dialog, lambda trusted: self._host_key_answered(question, bool(trusted)))

    def _host_key_answered(self, question: HostKeyQuestion, trusted: bool) -> None:
        self._key_dialog = None
        if trusted and self.state.link.question == question:
            try:
                self._link.trust_host_key(question)
            except LinkError as error:
                self.say(explain(error), "error")

    def _ask_for_the_link(self) -> None:
        """Shows the question that the link has open, and takes back one that it has not open any more."""
        prompt = self.state.link.prompt
        dialog = self._prompt_dialog
        if dialog is not None and dialog.prompt is not prompt:
            self._prompt_dialog = None
            if dialog.is_current:
                dialog.dismiss(None)
        if prompt is not None and self._prompt_dialog is None:
            self._prompt_dialog = PromptDialog(prompt)
            self.push_screen(self._prompt_dialog, lambda answer: self._link.answer_prompt(prompt, answer))

    # Hosts

    def connect_all(self) -> None:
        """Begins the links of the hosts that were not connected to yet."""
        self._connect(self._fleet.names)

    def _connect(self, names: Sequence[str]) -> None:
        for name in self._fleet.begin(names):
            self.run_worker(self._fleet.run(name), group="link", name=f"link {name}")

    async def show_host(self, name: str) -> None:
        """Brings another host in front. All screens are made anew: nothing of one host stays under another's name."""
        if name == self._fleet.front:
            await self.action_go(DASHBOARD)
            return
        self._connect([name])
        for group in _OF_ONE_HOST:
            self.workers.cancel_group(self, group)
        self.add_mode(_BETWEEN, Screen)
        await self.switch_mode(_BETWEEN)
        for mode, screen in self.MODES.items():
            if mode != HOSTS:
                await self.remove_mode(mode)
                self.add_mode(mode, screen)
        self._key_dialog = self._prompt_dialog = None
        self._fleet.front = name
        self.profile, self.state = self._fleet.profile(name), self._fleet.state(name)
        await self.switch_mode(DASHBOARD)
        await self.remove_mode(_BETWEEN)
        self._ask_about_host_key()
        self._ask_for_the_link()

    async def action_host(self, step: int) -> None:
        """Shows the host ``step`` places further on."""
        if len(self._fleet.names) == 1:
            self.say("There is no other host: a profile in the configuration adds one (eagle-console hosts add).")
        else:
            await self.show_host(self._fleet.beside(step))

    # Painting

    def _tick(self) -> None:
        self._ticks += 1
        every = _ALL_EVERY if self._dirty else _AGES_EVERY
        if self._ticks % every == 0:
            self.paint()
        elif self._dirty and not self._paused:
            for screen in self._console_screens():
                screen.paint_focused(self.view())

    def paint(self) -> None:
        """Paints what is on the screen now; while paused only the lines around it."""
        self._dirty = False
        view = self.view()
        for screen in self._console_screens():
            if self._paused:
                screen.paint_frame(view)
            else:
                screen.paint(view)

    def _console_screens(self) -> list[ConsoleScreen]:
        """The screens that can be painted: none while the program ends, which takes them down piece by piece."""
        if not self.is_running:
            return []
        return [screen for screen in self.screen_stack if isinstance(screen, ConsoleScreen) and screen.is_mounted]

    # Keys

    async def action_go(self, screen: str) -> None:
        """Shows a full screen."""
        if screen and screen != self.current_mode:
            await self.switch_mode(screen)

    def action_reconnect(self) -> None:
        if isinstance(self.screen, HostsScreen) and self.screen.selected != self._fleet.front:
            self._fleet.link(self.screen.selected).reconnect_now()
        elif self.state.link.state is LinkState.UNKNOWN_HOST_KEY:
            self._ask_about_host_key()
        else:
            self._link.reconnect_now()  # leaves a live link alone, unless it has gone silent

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.paint()

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.current_mode, self._own_keys))

    def action_leave(self) -> None:
        running = self.running()
        if not running:
            self.exit()
            return
        self.push_screen(QuitDialog(running), lambda leave: self.exit() if leave else None)

    def running(self) -> list[tuple[str, tuple[Job, ...]]]:
        """The hosts whose jobs run, the one in front first."""
        front = self._fleet.front
        behind = [self._fleet.state(name) for name in self._fleet.names if name != front]
        return [(state.name, jobs) for state in (self.state, *behind) if (jobs := state.live_jobs())]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette's entries: the action table, for the screen that is shown."""
        for action in actions_at(self.current_mode):
            if action.id == "palette":
                continue

            async def carry_out(action_string: str = action.action) -> None:
                await self.run_action(action_string, default_namespace=self.screen)

            yield SystemCommand(
                f"{action.label[:1].upper()}{action.label[1:]}  ({self._own_keys.key(action)})", action.help, carry_out
            )

    # Jobs

    async def show_log(self, job_id: str) -> None:
        """Opens the log of a job."""
        await self.action_go(LOGS)
        if isinstance(self.screen, LogsScreen):
            self.screen.show_job(job_id)

    def start_stage(self, name: str) -> None:
        """Asks the host for a stage and opens its form."""
        client = self.client
        if client is None:
            self.say("There is no connection to the host: R tries again now.", "warning")
            return
        self.run_worker(self._find_and_open(client, name), group="form", exclusive=True)

    async def _find_and_open(self, client: HostClient, name: str) -> None:
        try:
            answer = await client.stages(self.profile.context)
        except HOST_ERRORS as error:
            self.say(explain(error), "error")
            return
        stage = next((stage for stage in answer.stages if stage.name == name), None)
        if stage is None:
            self.say(f"This host has no stage {name}.", "error")
        else:
            self.open_form(stage)

    def open_form(self, stage: StageInfo) -> None:
        """Opens the form that starts a stage."""
        self.push_screen(StageForm(stage), self._stage_started)

    def _stage_started(self, job: Job | None) -> None:
        if job is not None:
            self.say(f"{job.stage} was started as {job.id}. Key 3 shows its log.")

    def compare(self, job: Job | None, other: Job | None = None) -> None:
        """Shows a job beside another one, by default the one before it of the same stage."""
        if job is None:
            self.say(stopping.NO_JOB, "warning")
            return
        jobs = self.state.jobs.value.jobs if self.state.jobs else ()
        other = other or one_before(job, (*jobs, *self.state.adopted_jobs()))
        if other is None:
            self.say(f"There is no other job of {job.stage}: space marks one of another stage.", "warning")
        else:
            self.push_screen(CompareDialog(other, job))

    def ask_to_stop(self, job: Job | None) -> None:
        """Opens the dialog that stops a job, or says why that makes no sense."""
        stopping.ask(self, job)

    def scan_disk(self) -> None:
        """Begins a full scan of the disk, or ends the one that runs; the disk panel shows how far it is."""
        client, disk = self.client, self.state.disk
        if client is None:
            self.say("There is no connection to the host: R tries again now.", "warning")
        else:
            self.run_worker(self._scan_disk(client, disk is not None and disk.value.scanning), group="scan")

    async def _scan_disk(self, client: HostClient, cancel: bool) -> None:
        try:
            await client.scan(cancel)
        except HOST_ERRORS as error:
            self.say(explain(error), "error")
        else:
            self.say("The scan was ended." if cancel else "A full scan begins; r ends it.")

    # Comforts

    def action_shell(self) -> None:
        """Lends the terminal to a shell on the host."""
        self.run_worker(comforts.lend_terminal(self, self._link), group="shell", exclusive=True)

    def forward(self, job: Job | None) -> None:
        """Forwards the server of a job to a port here, or ends that."""
        if job is None:
            self.say(stopping.NO_JOB, "warning")
        else:
            self.run_worker(self._forwards[self._fleet.front].toggle(self, self._link, job), group="forward")

    def copy_command(self, job: Job | None) -> None:
        """Copies the command line of a job."""
        if job is None:
            self.say(stopping.NO_JOB, "warning")
        else:
            self.run_worker(comforts.copy_command_line(self, job), group="copy")

    async def on_unmount(self) -> None:
        for forwards in self._forwards.values():
            await forwards.close()

    # The end

    def _handle_exception(self, error: Exception) -> None:
        """Ends the screen; ``run`` raises the error again outside it. Textual's own traceback prints all locals."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        self.crash = self.crash or error
        self._return_code = int(ExitCode.CRASH)
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()


def run(
    target: Target,
    others: Sequence[Target] = (),
    first: str = DASHBOARD,
    settings: ScreenSettings = _PLAIN,
) -> ExitCode:
    """Opens the screen of a host until the person leaves it.

    :param others: hosts that can be shown too. :param first: the screen that is shown first.
    :param settings: the look, the keys and the bell.
    :raises ConfigError: for settings that name what is not there.
    :raises Exception: whatever ended the screen unexpectedly, once the terminal is whole again.
    """
    app = ConsoleApp(
        target.profile, partial(Supervisor, target),
        others=[Host(other.profile, partial(Supervisor, other)) for other in others],
        first=first, settings=settings,
    )  # fmt: skip
    app.run()
    if app.crash is not None:
        raise app.crash
    for host, jobs in app.running():
        keep = "keeps" if len(jobs) == 1 else "keep"
        print(f"{fmt.plural(len(jobs), 'job')} {keep} running on {clean(host)}", file=sys.stderr)  # noqa: T201
    return ExitCode.DONE
