"""The questions. Each grade of risk has its own look and its own key, so that clicking through one teaches nothing for
the next: reversible ones are a thin frame with the focus on Cancel, costly ones a double frame that only ``y`` leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from eagle_console import format as fmt
from eagle_console.state import HostKeyQuestion
from eagle_console.text import clean
from eagle_console.tui import job_words
from remote.protocol.jobs import STOPPING, Job


class Dialog(ModalScreen[bool]):
    """A frame with a title, lines of text and what ``compose_answers`` offers. Dismissed with the answer."""

    GRADE = "reversible"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,n", "answer(False)", "cancel", show=False)]

    def __init__(self, title: str, lines: Sequence[Content | str]) -> None:
        super().__init__()
        self._title = title
        self._text = [Content(line) if isinstance(line, str) else line for line in lines]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes=f"dialog -{self.GRADE}", can_focus=False) as frame:
            frame.border_title = Content(clean(self._title, 70))
            yield Static(Content("\n").join(self._text), classes="dialog-text")
            with Horizontal(classes="dialog-answers"):
                yield from self.compose_answers()

    def compose_answers(self) -> ComposeResult:
        raise NotImplementedError

    def on_mount(self) -> None:
        buttons = self.query(Button)
        if buttons:
            buttons.first().focus()

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)

    @on(Button.Pressed)
    def _button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id == "accept")


class QuitDialog(Dialog):
    """Asked only while jobs run: what goes on without the console."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,y", "answer(True)", "quit", show=False)]

    def __init__(self, running: Sequence[tuple[str, Sequence[Job]]]) -> None:
        """:param running: each host with jobs that run."""
        lines = []
        for host, jobs in running:
            keep = "keeps" if len(jobs) == 1 else "keep"
            lines.append(f"{fmt.plural(len(jobs), 'job')} {keep} running on {clean(host, 60)}:")
            lines += [
                f"  {clean(job.stage, 24)}  {job_words.state_word(job)}  {fmt.duration(job.seconds)}" for job in jobs
            ]
        super().__init__("Quit", [*lines, "", "Quitting stops none of them."])

    def compose_answers(self) -> ComposeResult:
        yield Button("Stay", id="cancel", compact=True)
        yield Button("Quit (q)", id="accept", compact=True)


class StopDialog(Dialog):
    """Costly: says what is lost. Only ``y`` stops; enter does nothing."""

    GRADE = "costly"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "stop", show=False),
        Binding("enter,space", "nothing", show=False, priority=True),
    ]

    def __init__(self, job: Job, seconds: float | None) -> None:
        name = clean(job.id, 80)
        lost = job_words.lost_by_stopping(job, seconds)
        if job.state == STOPPING:
            lines: list[Content | str] = [
                Content.styled(f"{name} was asked to stop and is in its grace period.", "bold"),
                "y ends it at once: SIGKILL to its main process and to every descendant.",
            ]
        else:
            lines = [
                Content.styled(name, "bold"),
                Content.assemble(("Stopping loses ", "bold $text-warning"), lost, "."),
                "",
                "Its main process gets SIGTERM first, then its grace period, then all that is left of it is ended.",
            ]
        super().__init__("STOP A JOB", lines)

    def compose_answers(self) -> ComposeResult:
        yield Button("Keep it running (esc)", id="cancel", compact=True)
        yield Static(Content.assemble(("y", "bold reverse"), " stops it; enter does nothing"), classes="dialog-hint")

    def action_nothing(self) -> None:
        """Swallows enter and space, so that a habit cannot answer."""


class HostKeyDialog(Dialog):
    """An unknown host key: the person compares the fingerprint. The focus is on Cancel."""

    GRADE = "trust"

    def __init__(self, question: HostKeyQuestion) -> None:
        where = clean(question.host, 200) + (f" port {question.port}" if question.port != 22 else "")
        super().__init__(
            "UNKNOWN HOST KEY",
            [
                Content.assemble("The host ", (where, "bold"), " was never seen before. Its key:"),
                "",
                Content.assemble("  ", (clean(question.algorithm, 60), "$foreground-muted")),
                Content.assemble("  ", (clean(question.fingerprint, 200), "bold")),
                "",
                "Trust it only if its administrator, or a console on the host, shows the same fingerprint:",
                Content.styled("  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", "$foreground-muted"),
            ],
        )

    def compose_answers(self) -> ComposeResult:
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Trust and connect", id="accept", compact=True)
