"""``gpus``: the GPUs and who holds their memory."""

from __future__ import annotations

from eagle_console import documents
from eagle_console.commands.invocation import Invocation
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, gib_number, percent
from eagle_console.output import Output
from remote.protocol.gpu import DRIVER_OK, GPU_OK, Gpu, GpuSnapshot


async def gpus(call: Invocation) -> ExitCode:
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
