"""``stages``: the catalogue, with each stage's preflight verdict."""

from __future__ import annotations

from eagle_console import documents
from eagle_console.commands.invocation import Invocation
from eagle_console.exit_codes import ExitCode
from eagle_console.output import Output
from remote.protocol.stages import VERDICT_OK, StageInfo


async def stages(call: Invocation) -> ExitCode:
    async with call.host() as client:
        found = await client.stages(call.target.profile.context)
    if call.out.json:
        call.out.document({"stages": [documents.stage(stage) for stage in found.stages]})
        return ExitCode.DONE
    call.out.table(
        ("STAGE", "KIND", "VERDICT", "WHAT IT DOES"),
        [(stage.name, stage.kind, verdict(stage), stage.summary) for stage in found.stages],
    )
    for stage in found.stages:
        show_checks(stage, call.out)
    return ExitCode.DONE


def verdict(stage: StageInfo) -> str:
    return f"{stage.verdict} (REPLAY)" if stage.simulated else stage.verdict


def show_checks(stage: StageInfo, out: Output) -> None:
    """What the preflight found beyond ok: rule, reason, remedy."""
    for check in stage.checks:
        if check.verdict != VERDICT_OK:
            out.line(f"  {stage.name}: {check.verdict}: {check.reason} [{check.rule}]")
            if check.remedy:
                out.line(f"      {check.remedy}")
