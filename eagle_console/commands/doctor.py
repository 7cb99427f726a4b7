"""``doctor``: walks the way to a host and says of every step whether it holds, why not, and what to do."""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

from eagle_console import __version__, documents
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation
from eagle_console.config import ASYNCSSH, HostProfile, default_path, state_dir
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, gb, plural
from eagle_console.link import sshoptions
from eagle_console.link.connect import DEMO, LOCAL
from eagle_console.link.errors import LinkError
from eagle_console.output import Output
from remote.protocol.disk import DiskSnapshot
from remote.protocol.gpu import DRIVER_OK, GpuSnapshot
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check, StageContext, StageInfo

CLOCK_SKEW_SECONDS = 5.0
"""A host's clock further off than this makes times in the journal and in logs hard to compare."""

OF_THE_MOMENT = ("port", "read_only")
"""Preflight rules that say what runs now, or what this connection may do."""

_SMALL_DISK = 50_000_000_000


async def doctor(call: Invocation) -> ExitCode:
    checks = _console(call) + await ssh_checks(call.target.profile)
    started = time.monotonic()
    try:
        async with call.host() as client:
            seconds = time.monotonic() - started
            checks.append(Check("link", VERDICT_OK, f"connected to {call.target.profile.address} in {seconds:.2f} s"))
            checks += await host_checks(client, call.target.profile.context)
    except LinkError as error:
        checks.append(Check("link", VERDICT_BLOCKED, str(error), error.remedy))
    if call.out.json:
        call.out.document({"host": call.target.profile.name, "checks": [documents.check(check) for check in checks]})
    report_checks(call.out, checks)
    blocked = any(check.verdict == VERDICT_BLOCKED for check in checks)
    linked = any(check.rule == "link" and check.verdict == VERDICT_OK for check in checks)
    if not linked:
        return ExitCode.CONNECTION
    return ExitCode.FAILED if blocked else ExitCode.DONE


def report_checks(out: Output, checks: Sequence[Check]) -> None:
    """The checks for people, with their remedies."""
    for check in checks:
        out.line(f"{check.verdict:<8} {check.rule:<12} {check.reason}")
        if check.remedy and check.verdict != VERDICT_OK:
            out.line(f"{'':21} {check.remedy}")


async def ssh_checks(profile: HostProfile) -> list[Check]:
    """What of the user's ssh configuration the console does not follow on the way to a host."""
    if profile.transport != ASYNCSSH or profile.address in (LOCAL, DEMO):
        return []
    found = await sshoptions.scan(profile.address)
    return [Check("ssh_config", VERDICT_WARNING, option.sentence, sshoptions.REMEDY) for option in found]


def _console(call: Invocation) -> list[Check]:
    source = call.config.source or f"none (would be {default_path()})"
    return [
        Check(
            "console",
            VERDICT_OK,
            f"eagle-console {__version__}, Python {platform.python_version()}, textual {version('textual')}, "
            f"asyncssh {version('asyncssh')}",
        ),
        Check("config", VERDICT_OK, f"configuration {source}; state {state_dir()}"),
        Check("terminal", VERDICT_OK, "{0.columns}x{0.lines} cells".format(shutil.get_terminal_size())),
    ]


async def host_checks(client: HostClient, context: StageContext) -> list[Check]:
    """What holds on a host and what does not.

    :param context: the paths of the profile.
    """
    hello = client.hello
    gpus, host, disk, jobs, stages = await asyncio.gather(
        client.gpus(), client.host(), client.disk(), client.jobs(), client.stages(context)
    )
    checks = [
        Check(
            "agent", VERDICT_OK, f"bundle {hello.agent} in {hello.bundle_dir}, Python {hello.python}, pid {hello.pid}"
        ),
        Check("host", VERDICT_OK, f"{hello.user}@{hello.host}, {host.cpus} CPUs"),
    ]
    if not hello.psutil:
        checks.append(Check("psutil", VERDICT_WARNING, "psutil does not load here; the agent reads /proc itself"))
    skew = hello.wall - time.time()
    verdict = VERDICT_OK if abs(skew) < CLOCK_SKEW_SECONDS else VERDICT_WARNING
    checks.append(Check("clock", verdict, f"the host's clock differs by {skew:+.1f} s", "synchronise it (chrony, ntp)"))
    if hello.readonly:
        checks.append(Check("readonly", VERDICT_WARNING, f"read-only: {hello.readonly_reason}"))
    checks.append(
        Check("gpus", VERDICT_OK, _gpus(gpus))
        if gpus.driver == DRIVER_OK
        else Check("gpus", VERDICT_WARNING, gpus.message or gpus.driver)
    )
    checks.append(
        Check("workspace", VERDICT_BLOCKED, disk.problem, "set workspace in the profile to an existing directory")
        if disk.problem
        else Check("workspace", VERDICT_OK, _workspace(disk))
    )
    if disk.filesystem is not None:
        low = disk.filesystem.free < _SMALL_DISK
        checks.append(
            Check("disk", VERDICT_WARNING if low else VERDICT_OK, f"{gb(disk.filesystem.free)} free", "free some space")
        )
    checks.append(
        Check("jobs", VERDICT_WARNING if jobs.problem else VERDICT_OK, jobs.problem or plural(len(jobs.jobs), "job"))
    )
    return [*checks, *(check for stage in stages.stages for check in _stage(stage))]


def _stage(stage: StageInfo) -> list[Check]:
    """Whether a stage can be launched. What stands in the way for the moment only is no fault of the host."""
    rule = f"stage {stage.name}"
    problems = [check for check in stage.checks if check.verdict != VERDICT_OK]
    if not problems:
        return [Check(rule, VERDICT_OK, "can be launched" + _simulated(stage.simulated))]
    return [
        replace(check, rule=rule, verdict=VERDICT_WARNING if check.rule in OF_THE_MOMENT else check.verdict)
        for check in problems
    ]


def _gpus(snapshot: GpuSnapshot) -> str:
    driver = snapshot.driver_version or UNKNOWN
    return f"{plural(len(snapshot.gpus), 'GPU')}, driver {driver}{_simulated(snapshot.simulated)}"


def _workspace(snapshot: DiskSnapshot) -> str:
    directories = sum(entry.name != "." for entry in snapshot.entries)  # the dot is what lies beside them
    return f"{snapshot.workspace}, {plural(directories, 'artifact directory', 'artifact directories')}"


def _simulated(simulated: bool) -> str:
    return ", SIMULATED" if simulated else ""
