"""``triage``: everything that is recognised on the disk, with a verdict and its reasons."""

from __future__ import annotations

import time

from eagle_console import disk_documents
from eagle_console.commands.invocation import Invocation
from eagle_console.disk_words import (
    absolute,
    below,
    in_order,
    is_ripe,
    main_reason,
    outermost,
    proof_words,
    reasons_in_order,
    rebuild_words,
    reclaimable,
    total_reclaimable,
)
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, clock, duration_in_words, gb, plural
from eagle_console.output import Output
from remote.protocol.artifacts import KEEP, Artifact, Triage


async def triage(call: Invocation) -> ExitCode:
    async with call.host() as client:
        directories = [absolute(name, client.hello.workspace) for name in call.arguments.directories]
        found = await client.triage(directories, fresh=True)
    if call.out.json:
        call.out.document(disk_documents.triage(found))
    else:
        show(found, call.target.profile.name, call.out, in_full=bool(directories))
    return ExitCode.FAILED if found.problem else ExitCode.DONE


def show(found: Triage, host: str, out: Output, in_full: bool) -> None:
    """The artifacts in a table, those that could go first; every reason of each where directories were named."""
    if found.problem:
        out.line(f"Triage: {found.problem}")
    artifacts = in_order(found.artifacts)
    if artifacts and not in_full:
        rows = [_row(artifact, found.workspace) for artifact in artifacts]
        out.table(("VERDICT", "SIZE", "FREES", "CHANGED", "KIND", "WHAT", "WHY"), rows, right=(1, 2, 3))
    for artifact in artifacts if in_full else ():
        _show_in_full(artifact, found.workspace, out)
    if found.hidden:
        out.line()
        out.line("Deleted, but processes still hold them open; only their end frees these:")
        out.table(
            ("SIZE", "WHAT", "WHY"),
            [(gb(a.size.allocated), a.path, main_reason(a.verdict)) for a in found.hidden],
            right=(0,),
        )
    if found.left_out:
        out.line(f"{plural(found.left_out, 'smaller artifact')} left out; name a directory to see them")
    if not artifacts and not found.problem:
        out.line("nothing is recognised here")
        return
    ripe = outermost(artifact for artifact in artifacts if is_ripe(artifact))
    if ripe:
        total = gb(total_reclaimable(ripe))
        out.line(f"{total} could be freed from {plural(len(ripe), 'stale or torn artifact')}:")
        out.line(f"  eagle-console prune {host} PATH...   shows what goes and asks first")
    else:
        out.line("nothing is stale or torn")


def _row(artifact: Artifact, workspace: str) -> tuple[str, ...]:
    return (
        artifact.verdict.word,
        gb(artifact.size.allocated),
        UNKNOWN if artifact.verdict.word == KEEP else gb(reclaimable(artifact)),
        changed(artifact),
        artifact.kind.replace("_", " "),
        below(artifact.path, workspace) + ("  (pinned)" if artifact.pinned else ""),
        main_reason(artifact.verdict),
    )


def changed(artifact: Artifact) -> str:
    """How long ago anything in it changed."""
    return UNKNOWN if artifact.modified is None else duration_in_words(time.time() - artifact.modified)


def _show_in_full(artifact: Artifact, workspace: str, out: Output) -> None:
    kind = artifact.kind.replace("_", " ")
    detail = f", {artifact.detail}" if artifact.detail else ""
    out.line(
        f"{artifact.verdict.word}  {below(artifact.path, workspace)}  {gb(artifact.size.allocated)}"
        f"  ({kind}{detail}, {plural(artifact.size.files, 'file')}, changed {changed(artifact)} ago)"
    )
    for reason in reasons_in_order(artifact.verdict):
        seen = f" {clock(reason.observed, seconds=True)}" if reason.observed is not None else ""
        source = f"  [{reason.source}{seen}]" if reason.source else ""
        out.line(f"    {reason.text}{source}")
    for words in (rebuild_words(artifact.verdict), proof_words(artifact.verdict)):
        if words:
            out.line(f"    {words}")
