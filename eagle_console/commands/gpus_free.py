"""``gpus free``: who holds GPU memory, the end of what was chosen, and whether the memory came back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eagle_console import gpu_documents
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, duration, gib_number, plural
from eagle_console.gpu_freeing import lifted, succeeded
from eagle_console.output import Output
from eagle_console.person import person
from remote.protocol.errors import FAILED, NOT_FOUND, REFUSED, RequestError
from remote.protocol.freeing import FreeReport, GpuHolder, GpuHolders

POLL_SECONDS = 0.5


async def free(call: Invocation, pids: Sequence[int]) -> ExitCode:
    """Ends the holders that were named, or all that no rule protects, and waits for the memory.

    :raises Refused: where the confirmation is missing.
    :raises RequestError: ``refused`` where everything that was named is protected.
    """
    async with call.host() as client:
        found = await client.gpu_holders()
        if found.simulated:
            raise RequestError(REFUSED, "these GPUs are simulated: nothing holds their memory", "try a host with GPUs")
        if found.problem:
            raise RequestError(FAILED, f"the GPUs cannot be read: {found.problem}")
        chosen, kept = choose(found, pids, call.arguments.force)
        show(found, chosen, kept, call.out)
        if call.arguments.dry_run or not chosen:
            if call.out.json:
                call.out.document(gpu_documents.holders(found, [holder.pid for holder in chosen]))
            if pids and kept and not call.arguments.dry_run:
                raise RequestError(REFUSED, f"nothing was ended: {kept[0].pid}: {kept[0].refused}", _hint(kept))
            memory_left = any(gpu.unexplained for gpu in found.gpus) and not chosen and not call.arguments.dry_run
            return ExitCode.FAILED if memory_left else ExitCode.DONE
        call.confirm(f"End {plural(len(chosen), 'process', 'processes')} with everything below?", "gpus free")
        begun = await client.free_gpus(chosen, call.arguments.force, person())
        report = await _until_done(client, begun, call.out)
    if call.out.json:
        call.out.document(gpu_documents.report(report))
    show_report(report, call.out)
    return ExitCode.DONE if succeeded(report, chosen) else ExitCode.FAILED


def choose(found: GpuHolders, pids: Sequence[int], force: Sequence[str]) -> tuple[list[GpuHolder], list[GpuHolder]]:
    """What is to be ended, and what was named and is protected, or is protected and was not named.

    :raises RequestError: ``not_found`` for a pid that holds no GPU memory.
    :raises UsageError: for a name to force that protects nothing here.
    """
    by_pid = {holder.pid: holder for holder in found.holders}
    for pid in pids:
        if pid not in by_pid:
            listed = ", ".join(map(str, by_pid)) or "none"
            raise RequestError(NOT_FOUND, f"process {pid} holds no GPU memory", f"those that do: {listed}")
    names = {holder.force for holder in found.holders if holder.force}
    for name in force:
        if name not in names:
            raise UsageError(f"--force {name}: nothing here is protected by that name; {', '.join(names) or 'none is'}")
    wanted = [by_pid[pid] for pid in pids] if pids else list(found.holders)
    chosen = [holder for holder in wanted if lifted(holder, force)]
    return chosen, [holder for holder in wanted if holder not in chosen]


def show(found: GpuHolders, chosen: Sequence[GpuHolder], kept: Sequence[GpuHolder], out: Output) -> None:
    """The holders, with what becomes of each."""
    if found.holders:
        rows = []
        for holder in found.holders:
            fate = "end" if holder in chosen else f"stays: {holder.refused}" if holder in kept else ""
            rows.append(
                (str(holder.pid), " ".join(str(share.gpu) for share in holder.shares), gib_number(holder.memory),
                 holder.user or UNKNOWN, duration(holder.seconds), holder.job or holder.program or UNKNOWN, fate,
                 holder.command or holder.name or UNKNOWN)
            )  # fmt: skip
        out.table(("PID", "GPUS", "GiB", "USER", "AGE", "BELONGS TO", "FATE", "COMMAND"), rows, right=(0, 2, 4))
    else:
        out.line("No process holds GPU memory.")
    for gpu in found.gpus:
        if gpu.unexplained:
            out.line(f"GPU {gpu.index}: {gib_number(gpu.used)} GiB: {gpu.unexplained}")
    if kept and (hint := _hint(kept)):
        out.line(hint)


def show_report(report: FreeReport, out: Output) -> None:
    """What became of each process and each GPU."""
    for item in report.processes:
        out.line(f"{item.pid} {item.outcome}{f': {item.note}' if item.note else ''}")
    out.table(
        ("GPU", "BEFORE GiB", "AFTER GiB", ""),
        [
            (str(gpu.index), gib_number(gpu.before), gib_number(gpu.after),
             "free" if gpu.free else gpu.explanation or "in use")
            for gpu in report.gpus
        ],
        right=(0, 1, 2),
    )  # fmt: skip
    if report.problem:
        out.line(f"not finished: {report.problem}")
    out.line(f"{report.seconds:.1f} s")


async def _until_done(client: HostClient, report: FreeReport, out: Output) -> FreeReport:
    said = ""
    while report.running:
        if report.phase != said:
            said = report.phase
            out.say({"ending": "ending the processes", "settling": "waiting for the driver"}.get(said, said))
        await asyncio.sleep(POLL_SECONDS)
        report = await client.free_report(report.id)
    return report


def _hint(kept: Sequence[GpuHolder]) -> str:
    names = dict.fromkeys(holder.force for holder in kept if holder.force)
    return f"To end what is protected, name it: {' '.join(f'--force {name}' for name in names)}" if names else ""
