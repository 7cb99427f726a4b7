"""``checkpoints``: the checkpoints of one training run, the newest first."""

from __future__ import annotations

import shlex

from eagle_console import disk_documents
from eagle_console.commands.invocation import Invocation
from eagle_console.commands.triage import changed
from eagle_console.disk_words import absolute, below, checkpoint_marks, main_reason, number, yes_or_no
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, count, gb
from eagle_console.output import Output
from remote.protocol.artifacts import Checkpoint, CheckpointList


async def checkpoints(call: Invocation) -> ExitCode:
    async with call.host() as client:
        workspace = client.hello.workspace
        found = await client.checkpoints(absolute(call.arguments.directory, workspace))
    if call.out.json:
        call.out.document(disk_documents.checkpoints(found))
    else:
        show(found, workspace, call.target.profile.name, call.out)
    return ExitCode.FAILED if found.problem else ExitCode.DONE


def show(found: CheckpointList, workspace: str | None, host: str, out: Output) -> None:
    if found.problem:
        out.line(f"Checkpoints: {found.problem}")
    if not found.checkpoints:
        if not found.problem:
            out.line(f"{found.run} has no checkpoint")
        return
    headers = (
        "CHECKPOINT", "EPOCH", "STEP", "SIZE", "STATE", "RESUMES", "SERVES", "VAL LOSS", "PREDICTS", "MARKS", "AGE",
        "VERDICT", "WHY",
    )  # fmt: skip
    out.table(headers, [_row(checkpoint) for checkpoint in found.checkpoints], right=(1, 2, 3, 7, 8, 10))
    run = shlex.quote(below(found.run, workspace))
    out.line(f"eagle-console prune {host} --policy recommended {run} --dry-run   says what could go")


def _row(checkpoint: Checkpoint) -> tuple[str, ...]:
    return (
        checkpoint.name,
        UNKNOWN if checkpoint.epoch is None else str(checkpoint.epoch),
        count(checkpoint.step),
        gb(checkpoint.artifact.size.allocated),
        checkpoint.state,
        yes_or_no(checkpoint.resumable),
        yes_or_no(checkpoint.servable),
        number(checkpoint.validation_loss, 3),
        number(checkpoint.predicted_acceptance, 2),
        checkpoint_marks(checkpoint),
        changed(checkpoint.artifact),
        checkpoint.artifact.verdict.word,
        main_reason(checkpoint.artifact.verdict),
    )
