"""``gpus``: the GPUs and who holds their memory; ``gpus free`` ends holders."""

from __future__ import annotations

from eagle_console import documents
from eagle_console.commands import gpus_free
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, gib_number, percent
from eagle_console.output import Output
from remote.protocol.gpu import DRIVER_OK, GPU_OK, Gpu, GpuSnapshot

FREE = "free"


async def gpus(call: Invocation) -> ExitCode:
    """``gpus HOST`` or ``gpus free HOST [PID...]``."""
    words = list(call.arguments.words)
    if words[0] == FREE:
        if len(words) < 2:
            raise UsageError("gpus free needs a host: eagle-console gpus free HOST [PID...]")
        call.arguments.host = words[1]
        return await gpus_free.free(call, [_pid(word) for word in words[2:]])
    if len(words) > 1:
        raise UsageError(f"gpus takes one host, and not {' '.join(words[1:])}; gpus free HOST [PID...] ends processes")
    if call.arguments.force or call.arguments.dry_run:
        raise UsageError("--force and --dry-run belong to gpus free")
    call.arguments.host = words[0]
    return await _list(call)


async def _list(call: Invocation) -> ExitCode:
    async with call.host() as client:
        snapshot = await client.gpus()
    if call.out.json:
        call.out.document(documents.gpus(snapshot))
    else:
        show(snapshot, call.out)
    return ExitCode.DONE if snapshot.driver == DRIVER_OK else ExitCode.FAILED


def show(snapshot: GpuSnapshot, out: Output) -> None:
    """The GPUs as a table, then the processes that hold memory."""
    if snapshot.simulated:
        out.line("SIMULATED: no NVIDIA driver here; these eight cards are made up by the demo host")
    if snapshot.driver != DRIVER_OK:
        out.line(f"GPUs: {snapshot.message or snapshot.driver}")
        return
    out.table(
        ("GPU", "NAME", "USED GiB", "TOTAL GiB", "UTIL", "POWER", "LIMIT", "TEMP", "SM MHz", "STATE"),
        [_row(gpu) for gpu in snapshot.gpus],
        right=range(2, 9),
    )
    holders = [
        (str(gpu.index), str(process.pid), gib_number(process.memory), process.user or UNKNOWN,
         process.job or UNKNOWN, process.command or process.name or UNKNOWN)
        for gpu in snapshot.gpus
        for process in gpu.processes or ()
    ]  # fmt: skip
    if holders:
        out.line()
        out.table(("GPU", "PID", "GiB", "USER", "JOB", "COMMAND"), holders, right=(1, 2))


def _pid(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise UsageError(f"{word} is no process id; gpus HOST lists those that hold memory")
    return int(word)


def _row(gpu: Gpu) -> tuple[str, ...]:
    state = gpu.state if gpu.state == GPU_OK else f"{gpu.state}: {'; '.join(p.message for p in gpu.problems)}"
    return (
        str(gpu.index),
        gpu.name or UNKNOWN,
        gib_number(gpu.memory_used),
        gib_number(gpu.memory_total),
        percent(gpu.utilization),
        UNKNOWN if gpu.power is None else f"{gpu.power:.0f} W",
        UNKNOWN if gpu.power_limit is None else f"{gpu.power_limit:.0f} W",
        UNKNOWN if gpu.temperature is None else f"{gpu.temperature}°",
        UNKNOWN if gpu.sm_clock is None else str(gpu.sm_clock),
        state,
    )
