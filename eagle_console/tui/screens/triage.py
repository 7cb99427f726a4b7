"""Everything that is recognised on the disk with its verdict: look, mark, prune, pin."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable

from eagle_console import format as fmt
from eagle_console.client import HostClient
from eagle_console.disk_words import below, in_order, is_offered, main_reason, outermost, reclaimable, total_reclaimable
from eagle_console.text import clean, shorten
from eagle_console.tui import pruning
from eagle_console.tui.actions import TRIAGE, bindings
from eagle_console.tui.screens.asking import AskingScreen
from eagle_console.tui.screens.checkpoints import age
from eagle_console.tui.view import View
from eagle_console.tui.widgets.filter_input import FilterInput, matches
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.reason_lines import VERDICT_STYLES, reason_lines
from eagle_console.tui.widgets.table import Column, Row, Table
from remote.protocol import artifacts
from remote.protocol.artifacts import KEEP, Artifact, Triage

_COLUMNS = (
    Column("", 1),
    Column("verdict", 7),
    Column("takes", 7, right=True),
    Column("frees", 7, right=True),
    Column("age", 6, right=True),
    Column("kind", 13, least=90),
    Column("what", 0),
    Column("why", 0, least=100, share=2),
)


class TriageScreen(AskingScreen[Triage]):
    """The artifacts, those that could go first. Nothing is marked by itself."""

    NAME = TRIAGE
    BINDINGS = bindings(TRIAGE)

    def __init__(self) -> None:
        super().__init__()
        self._marked: set[str] = set()

    def compose_body(self) -> ComposeResult:
        yield Table(_COLUMNS, id="triage-table")
        yield Lines(id="reasons")
        yield Lines(id="marked")
        yield FilterInput()

    def on_mount(self) -> None:
        self._table.focus()
        super().on_mount()

    async def ask(self, client: HostClient) -> Triage:
        return await client.triage()

    @property
    def _table(self) -> Table:
        return self.query_one("#triage-table", Table)

    @property
    def _artifacts(self) -> list[Artifact]:
        return in_order(self.answer.value.artifacts) if self.answer else []

    def paint(self, view: View) -> None:
        super().paint(view)
        shown = self._artifacts
        self._marked &= {artifact.path for artifact in shown if is_offered(artifact)}
        rows = [_row(artifact, artifact.path in self._marked, view) for artifact in shown]
        rows += [_row(artifact, False, view) for artifact in (self.answer.value.hidden if self.answer else ())]
        pattern = self.query_one(FilterInput).value
        self._table.set_rows([row for row in rows if matches(" ".join(row.cells), pattern)])
        self._table.set_title(self._title(view))
        self._paint_reasons()
        self._paint_marked()

    def action_mark(self) -> None:
        artifact = self._selected
        if artifact is None:
            return
        if not is_offered(artifact):
            why = clean(main_reason(artifact.verdict)) or "nothing outside the workspace is pruned"
            name = clean(below(artifact.path, self.console_app.profile.workspace), 80)
            self.console_app.say(f"{name} stays: {why}", "warning")
            return
        self._marked ^= {artifact.path}
        self._table.action_cursor_down()
        self.paint(self.console_app.view())

    def action_prune(self) -> None:
        artifact = self._selected
        if not self.may_change():
            return
        marked = outermost(other for other in self._artifacts if other.path in self._marked)
        paths = tuple(other.path for other in marked) or ((artifact.path,) if artifact is not None else ())
        if not paths:
            self.console_app.say("There is nothing to prune here.", "warning")
            return
        name = below(paths[0], self.console_app.profile.workspace)
        title = f"PRUNE {name}" if len(paths) == 1 else f"PRUNE {len(paths)} ARTIFACTS"
        pruning.prune(self.console_app, pruning.Wish(title, paths))

    def action_undo(self) -> None:
        if self.may_change():
            pruning.undo(self.console_app)

    def action_pin(self) -> None:
        artifact = self._selected
        if artifact is not None and self.may_change():
            pruning.pin(self.console_app, artifact.path, not artifact.pinned)

    async def action_back(self) -> None:
        if not self.clear_filter():
            await self.console_app.action_go("checkpoints")

    @on(DataTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._paint_reasons()

    @property
    def _selected(self) -> Artifact | None:
        key = self._table.selected_key
        found = (*self._artifacts, *(self.answer.value.hidden if self.answer else ()))
        return next((artifact for artifact in found if artifact.path == key), None)

    def _title(self, view: View) -> str:
        title = f"Triage  {clean(self.mark(view), 200)}"
        if self.answer is None:
            return title
        triage = self.answer.value
        trouble = f"   {clean(triage.problem, 200)}" if triage.problem else ""
        left_out = f"   {triage.left_out} smaller ones left out" if triage.left_out else ""
        return f"{title}{trouble}{left_out}"

    def _paint_reasons(self) -> None:
        lines = self.query_one("#reasons", Lines)
        artifact = self._selected
        if artifact is None:
            nothing = "Nothing is recognised in the workspace." if self.answer and not self._artifacts else ""
            lines.set_lines([Content.styled(nothing, "$foreground-muted")])
            return
        width = max(20, lines.size.width)
        path = clean(below(artifact.path, self.console_app.profile.workspace), 400)
        facts = f"  {clean(artifact.detail, 100)}  {fmt.plural(artifact.size.files, 'file')}".replace("    ", "  ")
        pinned = "  PINNED" if artifact.pinned else ""
        head = Content.assemble((shorten(path, max(10, width - len(facts) - 10)), "bold"), facts, (pinned, "bold"))
        lines.set_lines(
            [head, *reason_lines(artifact, width, self.console_app.profile.workspace)][
                : 7 if self.has_class("-tall") else 4
            ]
        )

    def _paint_marked(self) -> None:
        marked = [artifact for artifact in self._artifacts if artifact.path in self._marked]
        line = self.query_one("#marked", Lines)
        if not marked:
            line.set_lines([Content.styled("nothing is marked: space marks, D plans for the row", "$foreground-muted")])
            return
        total = fmt.gb(total_reclaimable(marked))
        words = f"marked: {fmt.plural(len(marked), 'artifact')}, {total} reclaimable"
        line.set_lines([Content.assemble((words, "bold"), ("   D plans their deletion", "$foreground-muted"))])


def _row(artifact: Artifact, marked: bool, view: View) -> Row:
    word = artifact.verdict.word
    frees = reclaimable(artifact) if artifact.movable and word not in (KEEP, artifacts.UNKNOWN) else None
    pinned = "  pinned" if artifact.pinned else ""
    cells = (
        "*" if marked else "",
        clean(word, 20),
        fmt.gb(artifact.size.allocated),
        fmt.gb(frees),
        age(artifact, view),
        clean(artifact.kind.replace("_", " "), 40),
        clean(below(artifact.path, view.profile.workspace), 400) + pinned,
        clean(main_reason(artifact.verdict), 400),
    )
    return Row(artifact.path, cells, styled=1, style=VERDICT_STYLES.get(word, ""))
