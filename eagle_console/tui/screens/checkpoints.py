"""Runs and the checkpoints of the chosen one, with why each stays or could go."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console.client import HostClient
from eagle_console.disk_words import (
    below,
    checkpoint_marks,
    is_offered,
    is_ripe,
    main_reason,
    number,
    runs,
    total_reclaimable,
    yes_or_no,
)
from eagle_console.text import clean
from eagle_console.tui import pruning
from eagle_console.tui.actions import CHECKPOINTS, bindings
from eagle_console.tui.link import explain
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.reason_lines import VERDICT_STYLES, reason_lines
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol.artifacts import Artifact, Checkpoint, CheckpointList, Triage
from remote.protocol.errors import RequestError

_RUN_COLUMNS = (
    Column("run", 0),
    Column("checkpoints", 11, right=True),
    Column("takes", 8, right=True),
    Column("prunable", 8, right=True),
    Column("changed", 8, right=True, least=70),
    Column("what", 20, least=100),
)
_COLUMNS = (
    Column("", 1),
    Column("name", 0),
    Column("epoch", 5, right=True, least=110),
    Column("step", 7, right=True, least=110),
    Column("size", 7, right=True),
    Column("state", 9, least=100),
    Column("resumes", 7),
    Column("serves", 6, least=90),
    Column("val loss", 8, right=True),
    Column("predicts", 8, right=True),
    Column("", 11),
    Column("age", 6, right=True, least=110),
    Column("verdict", 7),
)


@dataclass(frozen=True)
class Picture:
    """What is known of the runs, and the checkpoints of those that were looked at, by run."""

    triage: Triage
    lists: dict[str, CheckpointList] = field(default_factory=dict)


class CheckpointsScreen(AskingScreen[Picture]):
    """Runs over checkpoints. ``D`` prunes a run as the policy recommends, or what is marked."""

    NAME = CHECKPOINTS
    BINDINGS = bindings(CHECKPOINTS)

    def __init__(self) -> None:
        super().__init__()
        self._run = ""
        self._marked: set[str] = set()

    def compose_body(self) -> ComposeResult:
        yield Table(_RUN_COLUMNS, id="run-table")
        yield Table(_COLUMNS, id="checkpoint-table")
        yield Lines(id="reasons")

    def on_mount(self) -> None:
        self._run_table.focus()
        super().on_mount()

    async def ask(self, client: HostClient) -> Picture:
        triage = await client.triage()
        known = runs(triage)
        lists = {run: found for run, found in self._lists.items() if run in known}
        run = self._run if self._run in known else next(iter(known), "")
        if run:
            try:
                lists[run] = await client.checkpoints(run)
            except RequestError as error:  # the other runs can still be shown
                lists[run] = CheckpointList(run, problem=explain(error))
        return Picture(triage, lists)

    @property
    def _run_table(self) -> Table:
        return self.query_one("#run-table", Table)

    @property
    def _table(self) -> Table:
        return self.query_one("#checkpoint-table", Table)

    @property
    def _lists(self) -> dict[str, CheckpointList]:
        return self.answer.value.lists if self.answer else {}

    def paint(self, view: View) -> None:
        super().paint(view)
        triage = self.answer.value.triage if self.answer else None
        known = runs(triage) if triage else []
        self._run_table.styles.height = min(8, max(4, len(known) + 3)) if self.has_class("-wide") else 5
        self._run_table.set_rows([_run_row(run, triage, view) for run in known] if triage else [])
        self._run_table.set_title(f"Runs  {clean(self.mark(view), 200)}")
        self._run = self._run_table.selected_key or ""
        checkpoints = self._checkpoints
        self._marked &= {item.artifact.path for item in checkpoints if is_offered(item.artifact)}
        self._table.set_rows([_row(item, item.artifact.path in self._marked, view) for item in checkpoints])
        self._table.set_title(self._title(view))
        self._paint_reasons()

    def action_mark(self) -> None:
        checkpoint = self._selected
        if checkpoint is None:
            self.console_app.say("Marks are for checkpoints: tab goes to their table.", "warning")
        elif not is_offered(checkpoint.artifact):
            why = clean(main_reason(checkpoint.artifact.verdict)) or "its verdict is keep"
            self.console_app.say(f"{clean(checkpoint.name, 80)} stays: {why}", "warning")
        else:
            self._marked ^= {checkpoint.artifact.path}
            self._table.action_cursor_down()
            self.paint(self.console_app.view())

    def action_prune(self) -> None:
        if not self.may_change():
            return
        workspace = self.console_app.profile.workspace
        if self._marked:
            paths = tuple(sorted(self._marked))
            pruning.prune(self.console_app, pruning.Wish(f"PRUNE {len(paths)} OF {below(self._run, workspace)}", paths))
        elif self._run:
            wish = pruning.Wish(
                f"PRUNE {below(self._run, workspace)}", run=self._run, level=self.console_app.profile.prune
            )
            pruning.prune(self.console_app, wish)
        else:
            self.console_app.say("There is no run to prune.", "warning")

    def action_undo(self) -> None:
        if self.may_change():
            pruning.undo(self.console_app)

    def action_pin(self) -> None:
        checkpoint = self._selected
        if checkpoint is None:
            self.console_app.say("A pin protects a checkpoint: tab goes to their table.", "warning")
        elif self.may_change():
            pruning.pin(self.console_app, checkpoint.artifact.path, not checkpoint.artifact.pinned)

    @on(DataTable.RowHighlighted, "#run-table")
    def _run_highlighted(self) -> None:
        chosen = self._run_table.selected_key
        if chosen is not None and chosen != self._run:
            self._run = chosen
            self._marked.clear()
            self.paint(self.console_app.view())
            self.look_again()

    @on(DataTable.RowHighlighted, "#checkpoint-table")
    def _checkpoint_highlighted(self) -> None:
        self._paint_reasons()

    @property
    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        found = self._lists.get(self._run)
        return found.checkpoints if found else ()

    @property
    def _selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor of the table that has the focus."""
        if self.focused is not self._table:
            return None
        key = self._table.selected_key
        return next((item for item in self._checkpoints if item.artifact.path == key), None)

    def _title(self, view: View) -> str:
        found = self._lists.get(self._run)
        if not self._run:
            return "Checkpoints"
        name = clean(below(self._run, view.profile.workspace), 60)
        if found is None:
            return f"Checkpoints of {name}: asking"
        if found.problem:
            return f"Checkpoints of {name}: {clean(found.problem, 200)}"
        marked = f"   marked: {len(self._marked)}" if self._marked else ""
        return f"{fmt.plural(len(found.checkpoints), 'checkpoint')} of {name}{marked}"

    def _paint_reasons(self) -> None:
        lines = self.query_one("#reasons", Lines)
        width = max(20, lines.size.width)
        key = self._table.selected_key
        item = next((item for item in self._checkpoints if item.artifact.path == key), None)
        if item is None:
            words = "No run is recognised in the workspace." if self.answer and not self._run else ""
            lines.set_lines([Content.styled(words, "$foreground-muted")])
        else:
            head = Content.assemble((clean(item.name, 60), "bold"), f"  {clean(item.artifact.detail, 200)}".rstrip())
            lines.set_lines(
                [head, *reason_lines(item.artifact, width, self.console_app.profile.workspace)][
                    : 7 if self.has_class("-tall") else 4
                ]
            )


def _run_row(run: str, triage: Triage, view: View) -> Row:
    parts = [artifact for artifact in triage.artifacts if artifact.run == run and artifact.path != run]
    whole = next((artifact for artifact in triage.artifacts if artifact.path == run), None)
    checkpoints = [artifact for artifact in parts if artifact.kind == "checkpoint"]
    ripe = [artifact for artifact in checkpoints if is_ripe(artifact)]
    takes = whole.size.allocated if whole else sum(artifact.size.allocated for artifact in parts)
    cells = (
        clean(below(run, view.profile.workspace), 200),
        str(len(checkpoints)),
        fmt.gb(takes),
        fmt.gb(total_reclaimable(ripe)) if ripe else fmt.UNKNOWN,
        age(whole or next(iter(parts), None), view),
        clean(whole.detail, 60) if whole else "",
    )
    return Row(run, cells)


def _row(item: Checkpoint, marked: bool, view: View) -> Row:
    word = item.artifact.verdict.word
    cells = (
        "*" if marked else "",
        clean(item.name, 200),
        fmt.UNKNOWN if item.epoch is None else str(item.epoch),
        fmt.count(item.step),
        fmt.gb(item.artifact.size.allocated),
        clean(item.state, 20),
        yes_or_no(item.resumable),
        yes_or_no(item.servable),
        number(item.validation_loss, 3),
        number(item.predicted_acceptance, 2),
        checkpoint_marks(item),
        age(item.artifact, view),
        clean(word, 20),
    )
    return Row(item.artifact.path, cells, styled=12, style=VERDICT_STYLES.get(word, ""))


def age(artifact: Artifact | None, view: View) -> str:
    """How long ago anything in it changed: ``8d``, ``18min``."""
    if artifact is None or artifact.modified is None:
        return fmt.UNKNOWN
    return fmt.age(max(10.0, view.wall - artifact.modified))
