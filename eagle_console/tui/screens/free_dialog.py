"""Freeing GPUs: what holds their memory, what of it is ended, and then how that goes.

Costly: a double frame, ``y`` alone goes on. What a rule protects is taken only once its name was typed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from eagle_console import format as fmt
from eagle_console.gpu_freeing import lifted
from eagle_console.text import clean, fit
from eagle_console.tui.holders import ranges
from eagle_console.tui.widgets.prose import prose
from remote.protocol.freeing import FreeReport, GpuHolder, GpuHolders

_PHASES = {"ending": "ending the processes", "settling": "waiting for the driver to give the memory back"}


@dataclass(frozen=True)
class Choice:
    """What a person chose to end, and the names that were typed for what is protected."""

    holders: tuple[GpuHolder, ...]
    force: tuple[str, ...] = ()


class FreeDialog(ModalScreen[Choice | None]):
    """Dismissed with the choice, or None. Everything that nothing protects is marked at first.

    :param found: who holds memory now.
    :param pid: the row that the person stood on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "cancel", "cancel", show=False),
        Binding("y", "go", "end them", show=False),
        Binding("space", "mark", "mark", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
    ]

    def __init__(self, found: GpuHolders, pid: int | None = None) -> None:
        super().__init__()
        self._found = found
        self._marked = {holder.pid for holder in found.holders if not holder.refused}
        self._force: set[str] = set()
        pids = [holder.pid for holder in found.holders]
        self._cursor = pids.index(pid) if pid in pids else 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -plan -costly") as frame:
            frame.border_title = Content("FREE GPU MEMORY")
            with VerticalScroll(id="free-text", can_focus=False):
                yield Static(id="free-lines")
            yield Static(id="free-summary")
            if any(holder.force for holder in self._found.holders):
                yield Static("To take what is protected, type its name and press enter:", classes="dialog-hint")
                yield Input(compact=True, id="answer", select_on_focus=False)
            with Horizontal(classes="dialog-answers"):
                yield Button("Leave them (esc)", id="cancel", compact=True)
                yield Static(id="free-hint", classes="dialog-hint")

    def on_mount(self) -> None:
        self.query_one("#cancel").focus()
        self._paint()

    def on_resize(self) -> None:
        self.query_one("#free-text", VerticalScroll).styles.max_height = max(3, int(self.app.size.height * 0.94) - 12)
        self._paint()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_move(self, lines: int) -> None:
        last = len(self._found.holders) - 1
        self._cursor = max(0, min(last, self._cursor + lines))
        self._paint()

    def action_mark(self) -> None:
        if not self._found.holders:
            return
        holder = self._found.holders[self._cursor]
        if holder.pid in self._marked:
            self._marked.remove(holder.pid)
        elif lifted(holder, self._force):
            self._marked.add(holder.pid)
        self._paint()

    def action_go(self) -> None:
        chosen = self._chosen()
        if chosen:
            names = {holder.force for holder in chosen if holder.refused}
            self.dismiss(Choice(tuple(chosen), tuple(sorted(names))))

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        event.stop()
        under = {holder.pid for holder in self._found.holders if holder.force and holder.force == event.value}
        if under:
            self._force.add(event.value)
            self._marked |= under
            event.input.clear()
            self.query_one("#cancel").focus()
        self._paint("" if under else f"nothing here is protected by the name {clean(event.value, 40)!r}")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(None)

    def _chosen(self) -> list[GpuHolder]:
        return [holder for holder in self._found.holders if holder.pid in self._marked]

    def _paint(self, trouble: str = "") -> None:
        text = self.query_one("#free-text", VerticalScroll)
        width = max(40, text.size.width - 2)
        lines = holder_lines(self._found, self._marked, self._cursor, self._force, width)
        self.query_one("#free-lines", Static).update(Content("\n").join(lines))
        self.query_one("#free-summary", Static).update(summary(self._chosen()))
        hint = Content.assemble(("y", "bold reverse"), " ends them; space marks; esc leaves them")
        if trouble:
            hint = Content.styled(trouble, "$text-warning")
        elif not self._marked:
            hint = Content.styled("nothing is marked", "$foreground-muted")
        self.query_one("#free-hint", Static).update(hint)


class FreeingDialog(ModalScreen[None]):
    """How it goes, until the person closes it. Closing stops nothing: the host goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "close", "close", show=False)]

    def __init__(self, report: FreeReport) -> None:
        super().__init__()
        self._report = report

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -plan -costly") as frame:
            frame.border_title = Content("FREEING GPU MEMORY")
            with VerticalScroll(id="free-text", can_focus=False):
                yield Static(id="free-lines")
            with Horizontal(classes="dialog-answers"):
                yield Button("Close", id="close", compact=True)
                yield Static(id="free-hint", classes="dialog-hint")

    def on_mount(self) -> None:
        self.query_one("#close").focus()
        self.show(self._report)

    def show(self, report: FreeReport) -> None:
        """Shows a newer report."""
        self._report = report
        if not self.is_attached:
            return
        width = max(40, self.query_one("#free-text").size.width - 2)
        self.query_one("#free-lines", Static).update(Content("\n").join(report_lines(report, width)))
        hint = "closing stops nothing" if report.running else f"done after {report.seconds:.1f} s"
        self.query_one("#free-hint", Static).update(Content.styled(hint, "$foreground-muted"))

    def on_resize(self) -> None:
        self.show(self._report)

    def action_close(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(None)


def holder_lines(
    found: GpuHolders, marked: Collection[int], cursor: int, force: Collection[str], width: int
) -> list[Content]:
    """The holders, each with its mark, what it holds, whose it is, and why it is protected."""
    lines: list[Content] = []
    for number, holder in enumerate(found.holders):
        mark = "[x]" if holder.pid in marked else "[ ]" if lifted(holder, force) else " – "
        owner = holder.job or holder.program or holder.user or fmt.UNKNOWN
        gpus = ranges([share.gpu for share in holder.shares])
        head = (
            f"{'>' if number == cursor else ' '} {mark} {holder.pid:>8}  GPU {gpus:<7}"
            f" {fmt.gib(holder.memory):>10}  {fmt.duration(holder.seconds):>7}  {fit(clean(owner, 40), 22)}"
        )
        lines.append(Content.styled(fit(head, width), "bold" if number == cursor else ""))
        command = clean(holder.command or holder.name or "(outside this container)", 400)
        lines.append(Content.styled(fit(f"{'':16}{command}", width), "$foreground-muted"))
        if holder.orphan:
            lines.append(Content(f"{'':16}orphan: its API server has died, it holds memory for nobody"))
        if holder.refused:
            way = f"; type {clean(holder.force, 60)} to take it all the same" if holder.force else ""
            for text in prose(f"protected: {clean(holder.refused, 200)}{way}", max(20, width - 16)):
                lines.append(Content.assemble(" " * 16, text.stylize("$text-warning")))
    if not found.holders:
        lines.append(Content("No process holds GPU memory."))
    for gpu in found.gpus:
        if gpu.unexplained:
            rest = f"GPU {gpu.index}: {fmt.gib(gpu.used)} without a process: {clean(gpu.unexplained, 300)}"
            lines += prose(rest, width)
    return lines


def summary(chosen: Sequence[GpuHolder]) -> Content:
    """What ``y`` would do."""
    if not chosen:
        return Content("")
    known = [holder.memory for holder in chosen if holder.memory is not None]
    size = f", {fmt.gib(sum(known))}" if known else ""
    count = fmt.plural(len(chosen), "process", "processes")
    return Content.assemble(
        ("Ends ", "bold $text-warning"),
        f"{count} with everything below{size}: SIGTERM, a grace period, then SIGKILL. What they did is lost.",
    )


def report_lines(report: FreeReport, width: int) -> list[Content]:
    """What has become of processes and GPUs so far."""
    lines = [Content(f"{item.pid}  {item.outcome}{f': {clean(item.note, 200)}' if item.note else ''}")
             for item in report.processes]  # fmt: skip
    if report.running:
        lines.append(Content.styled(f"{_PHASES.get(report.phase, report.phase or 'begun')} …", "bold"))
    lines.append(Content(""))
    for gpu in report.gpus:
        state = Content.styled("free", "bold $text-success") if gpu.free else Content("in use")
        lines.append(
            Content.assemble(f"GPU {gpu.index}  {fmt.gib(gpu.before):>10} -> {fmt.gib(gpu.after):>10}  ", state)
        )
        if gpu.explanation and not gpu.free:
            lines += [Content.assemble("       ", text) for text in prose(clean(gpu.explanation, 400), width - 7)]
    if report.problem:
        lines.append(Content.styled(f"Not finished: {clean(report.problem, 300)}", "bold $text-error"))
    return lines
