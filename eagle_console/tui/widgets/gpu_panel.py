"""The GPUs, the processes that hold their memory, and the host's own load below."""

from __future__ import annotations

from collections import Counter
from typing import Any

from textual.content import Content

from eagle_console import format as fmt
from eagle_console.state import Timed
from eagle_console.text import clean, shorten
from eagle_console.tui.holders import Holder, holders
from eagle_console.tui.view import View
from eagle_console.tui.widgets.gpu_row import Columns, gpu_row, header
from eagle_console.tui.widgets.panel import Panel
from eagle_console.tui.widgets.prose import prose
from remote.protocol.gpu import DRIVER_OK, GpuSnapshot
from remote.protocol.host import HostSample


class GpuPanel(Panel):
    """GPU rows. On a low panel the rows come first; the host line and the holders take what is left."""

    TARGET = "gpus"

    def heading(self, view: View) -> str:
        gpus = view.state.gpus
        return f"1 GPUs  {gpu_summary(gpus.value)}" if gpus and gpus.value.gpus else "1 GPUs"

    def source(self, view: View) -> Timed[Any] | None:
        return view.state.gpus

    def body(self, view: View, width: int, height: int) -> list[Content]:
        host = view.state.host.value if view.state.host else None
        tail = [host_line(host, width)] if host is not None else []
        if view.state.gpus is None:
            problem = view.state.problems.get("gpus")
            return [*(prose(clean(problem), width, "$text-error") if problem else []), *tail]
        snapshot = view.state.gpus.value
        if snapshot.driver != DRIVER_OK or not snapshot.gpus:
            return [*driver_lines(snapshot, width), *([Content("")] if tail else []), *tail]
        rows = gpu_lines(view, snapshot, width)
        room = height - len(rows)
        if room < 1:
            rows = rows[1:]  # without the names of the columns
        if len(rows) > height:
            hidden = len(rows) - height + 1
            return [*rows[: height - 1], Content.styled(f"… {hidden} more: key 1 shows all", "$foreground-muted")]
        if room >= 1 and tail:
            rows += tail
        if room >= 4:
            rows += [Content(""), *holder_lines(snapshot, width, room - len(tail) - 1)]
        return rows


def gpu_lines(view: View, snapshot: GpuSnapshot, width: int) -> list[Content]:
    """The names of the columns and a line for each GPU."""
    columns = Columns.for_width(width, snapshot.gpus)
    history = view.state.gpu_history
    rows = [gpu_row(gpu, history.get(gpu.index, ()), columns, width, view.ascii) for gpu in snapshot.gpus]
    return [header(columns), *rows]


def gpu_summary(snapshot: GpuSnapshot) -> str:
    """``8 × RTX PRO 6000``: how many of which, without the vendor's name."""
    names = Counter(clean(gpu.name, 60) for gpu in snapshot.gpus if gpu.name)
    parts = [f"{number} × {_short_name(name)}" for name, number in names.items()]
    unnamed = sum(1 for gpu in snapshot.gpus if not gpu.name)
    if unnamed:
        parts.append(f"{unnamed} unnamed")
    return " + ".join(parts)


def driver_lines(snapshot: GpuSnapshot, width: int) -> list[Content]:
    """Why there are no GPUs to show, and what helps: the agent's own words."""
    if snapshot.driver == DRIVER_OK:
        return prose(clean(snapshot.message) or "The driver answers and shows no GPU.", width)
    return prose(clean(snapshot.message) or f"The GPUs cannot be read: {clean(snapshot.driver, 40)}.", width)


def holder_lines(snapshot: GpuSnapshot, width: int, height: int) -> list[Content]:
    """The processes that hold memory, at most ``height`` lines."""
    found = holders(snapshot)
    if not found:
        return [Content.styled("no process holds GPU memory", "$foreground-muted")]
    lines = [_holder_line(holder, width) for holder in found]
    if len(lines) > height:
        hidden = fmt.plural(len(lines) - height + 1, "more process", "more processes")
        lines = [*lines[: height - 1], Content.styled(f"… {hidden}: key 1 shows all", "$foreground-muted")]
    return lines


def host_line(host: HostSample, width: int) -> Content:
    """CPU, memory, load and shared memory of the host; what does not fit is left out, not cut."""
    used = None
    if host.memory_total is not None and host.memory_available is not None:
        used = host.memory_total - host.memory_available
    facts = [("CPU", f"{fmt.percent(host.cpu_percent)} of {host.cpus}"), ("RAM", fmt.gib_of(used, host.memory_total))]
    if host.load:
        facts.append(("load", f"{host.load[0]:.1f}"))
    if host.shm is not None:
        facts.append(("/dev/shm", fmt.gib_of(host.shm.used, host.shm.total)))
    facts.append(("up", fmt.duration_in_words(host.uptime)))
    line = Content("")
    for name, value in facts:
        piece = Content.assemble((name, "$foreground-muted"), " ", value)
        joined = Content.assemble(line, "  ", piece) if line else piece
        if joined.cell_length > width:
            break
        line = joined
    return line


def _holder_line(holder: Holder, width: int) -> Content:
    job = f"  {clean(holder.process.job, 60)}" if holder.process.job else ""
    owner = f"  {clean(holder.process.user, 20)}" if holder.process.user else ""
    text = f"{holder.memory_text:>9} on {holder.gpu_text:<5} {holder.name}  pid {holder.pid}{owner}{job}"
    return Content.styled(shorten(text, width), "$foreground-muted")


def _short_name(name: str) -> str:
    for prefix in ("NVIDIA ", "GeForce "):
        name = name.removeprefix(prefix)
    return name
