"""The disk: the workspace's file system and its artifact directories, the largest first."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from textual.content import Content

from eagle_console import format as fmt
from eagle_console.state import Timed
from eagle_console.text import clean, fit, shorten, shorten_path
from eagle_console.tui.view import View
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from remote.protocol.disk import ArtifactUsage, DiskSnapshot
from remote.protocol.host import Filesystem

_SIZE = 8
_BAR = "$secondary-lighten-3"
_LOW_SHARE = 0.95
"""From this share on a file system is marked as nearly full."""


class DiskPanel(Panel):
    """Capacity on the first line, then a bar for each directory, then the state of the scan."""

    TARGET = "triage"

    def heading(self, view: View) -> str:
        disk = view.state.disk
        workspace = disk.value.workspace if disk else view.profile.workspace
        return f"Disk  {shorten_path(clean(workspace), max(8, self.size.width - 16))}" if workspace else "Disk"

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.disk

    def body(self, view: View, width: int, height: int) -> list[Content]:
        filesystem = _filesystem(view)
        capacity = [capacity_line(filesystem, width, view.ascii)] if filesystem else []
        if view.state.disk is None:
            problem = view.state.problems.get("disk", "")
            silent = "" if view.profile.workspace else "The profile names no workspace, so nothing is measured."
            return [*capacity, *prose(clean(problem) or silent, width, "$text-warning")]
        snapshot = view.state.disk.value
        if snapshot.problem:
            return [*capacity, *prose(clean(snapshot.problem), width, "$text-error")]
        scan = [Content.styled(shorten(_scan_text(snapshot), width), "$foreground-muted")]
        if height < 6 and not snapshot.scanning and snapshot.entries:
            scan = []
        room = height - len(capacity) - len(scan)
        return [*capacity, *_entries(snapshot, width, room, view.ascii), *scan]


def capacity_line(filesystem: Filesystem, width: int, ascii: bool = False) -> Content:
    """How full a file system is: a bar, the free space and the whole."""
    whole = filesystem.used + filesystem.free
    share = filesystem.used / whole if whole else None
    percent = fmt.percent(None if share is None else share * 100)
    numbers = f" {percent:>4} used  {fmt.gb(filesystem.free)} free"
    if width >= 50:
        numbers += f" of {fmt.gb(filesystem.total)}"
    style = ""
    if filesystem.readonly:
        numbers, style = numbers + "  READ-ONLY", "bold $text-warning"
    elif share is not None and share >= _LOW_SHARE:
        numbers, style = numbers + "  NEARLY FULL", "bold $text-error"
    numbers = shorten(numbers, width)
    return Content.assemble(meter(share, width - len(numbers), _BAR, ascii), (numbers, style))


def _entries(snapshot: DiskSnapshot, width: int, room: int, ascii: bool) -> list[Content]:
    if not snapshot.entries:
        return [] if snapshot.scanned is None else prose("No artifact directory in the workspace yet.", width)
    largest = max(entry.allocated for entry in snapshot.entries)
    shown = snapshot.entries if len(snapshot.entries) <= room else snapshot.entries[: max(0, room - 1)]
    lines = [_entry_line(entry, largest, width, snapshot, ascii) for entry in shown]
    rest = snapshot.entries[len(shown) :]
    if rest and room > 0:
        total = fmt.gb(sum(entry.allocated for entry in rest))
        lines.append(Content.styled(shorten(f"… {len(rest)} more, {total}", width), "$foreground-muted"))
    return lines


def _entry_line(entry: ArtifactUsage, largest: int, width: int, snapshot: DiskSnapshot, ascii: bool) -> Content:
    names = max(cell_len(_name(other)) for other in snapshot.entries)
    name_width = max(8, min(names, width * 2 // 5))
    size = ("≥ " if entry.incomplete else "") + fmt.gb(entry.allocated)
    facts = f"  {fmt.plural(entry.files, 'file')}" if width >= 46 else ""
    if entry.incomplete:
        facts = f"  {fmt.count(entry.incomplete)} unreadable"
    facts = fit(facts, 15) if facts else ""
    bar = max(4, width - name_width - 1 - _SIZE - 1 - len(facts))
    share = entry.allocated / largest if largest else None
    return Content.assemble(
        fit(_name(entry), name_width),
        " ",
        meter(share, bar, _BAR, ascii),
        " ",
        (size.rjust(_SIZE), "bold"),
        (facts, "$foreground-muted"),
    )


def _name(entry: ArtifactUsage) -> str:
    """The directory's name; what lies in the workspace itself comes under a dot."""
    return "(loose files)" if entry.name == "." else clean(entry.name, 200)


def _scan_text(snapshot: DiskSnapshot) -> str:
    if snapshot.scanning and snapshot.scanned is None:
        return f"first scan: {fmt.count(snapshot.files_seen)} files so far, sizes are not complete"
    if snapshot.scanning:
        expected = f" of about {fmt.count(snapshot.files_expected)}" if snapshot.files_expected else ""
        return f"scanning again: {fmt.count(snapshot.files_seen)}{expected} files so far"
    if snapshot.scanned is None:
        return "not scanned yet"
    total = fmt.gb(sum(entry.allocated for entry in snapshot.entries))
    directories = fmt.plural(sum(entry.name != "." for entry in snapshot.entries), "directory", "directories")
    return f"{total} in {directories}, scanned {fmt.clock(snapshot.scanned)}{_full_text(snapshot)}"


def _full_text(snapshot: DiskSnapshot) -> str:
    """How fast the file system fills up, and when it is full; empty while it does not grow or that is not known."""
    if snapshot.growth is None or snapshot.full_in is None:
        return ""
    return f"; grows {fmt.gb(snapshot.growth)}/h, full in {fmt.duration_in_words(snapshot.full_in)}"


def _filesystem(view: View) -> Filesystem | None:
    if view.state.disk is not None and view.state.disk.value.filesystem is not None:
        return view.state.disk.value.filesystem
    return view.state.host.value.workspace if view.state.host is not None else None
