"""``validate``: what vLLM would make of a draft, by the rules, without loading it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from eagle_console import draft_documents, host_path
from eagle_console.commands.invocation import Invocation, Refused, UsageError
from eagle_console.exit_codes import ExitCode
from eagle_console.format import gb, plural
from eagle_console.output import Output
from eagle_console.person import person
from remote.drafts.fixing import fix_draft
from remote.drafts.validating import validate as validate_here
from remote.protocol.validation import DraftFinding, DraftFix, DraftValidation

_SILENT = {"silent": ", without a word", "error": "", "none": ""}


@dataclass(frozen=True)
class _Wish:
    """What the command line asks for. ``fix`` is the place of a copy, empty for the usual one, None for none."""

    path: str
    verifier: str | None
    layer_ids: str | None
    fix: str | None


async def validate(call: Invocation) -> ExitCode:
    place = host_path.parse(call.arguments.draft)
    wish = _Wish(place.path, _beside(call, place.host), call.arguments.layer_ids, _target(call, place.host))
    if place.host is None:
        if wish.fix is not None and call.arguments.readonly:
            raise Refused("--fix writes a folder, and --readonly was given; nothing was done")
        answer = await asyncio.to_thread(_here, wish)
    else:
        call.arguments.host = place.host
        answer = await _there(call, wish)
    return _show(call, place.host, answer)


def _here(wish: _Wish) -> DraftValidation | DraftFix:
    if wish.fix is not None:
        return fix_draft(wish.path, wish.fix or None, wish.verifier, wish.layer_ids)
    return validate_here(wish.path, wish.verifier, wish.layer_ids)


async def _there(call: Invocation, wish: _Wish) -> DraftValidation | DraftFix:
    verifier = wish.verifier or call.target.profile.verifier
    async with call.host() as client:
        if wish.fix is not None:
            return await client.fix_draft(wish.path, wish.fix or None, verifier, wish.layer_ids, person())
        return await client.validate(wish.path, verifier, wish.layer_ids)


def _beside(call: Invocation, host: str | None) -> str | None:
    """The verifier's folder, which must be on the draft's host; a plain path means that host too."""
    if call.arguments.verifier is None:
        return None
    verifier = host_path.parse(call.arguments.verifier)
    if verifier.host is None:
        return verifier.path if host is None else str(call.arguments.verifier)
    if verifier.host != host:
        raise UsageError(f"the verifier is on {verifier.host} and the draft is not; both must be on one host")
    return verifier.path


def _target(call: Invocation, host: str | None) -> str | None:
    if not call.arguments.fix:
        return None if call.arguments.fix is None else ""
    target = host_path.parse(call.arguments.fix)
    if target.host not in (None, host):
        raise UsageError("the corrected copy is written on the draft's own host")
    return target.path if target.host is not None or host is None else str(call.arguments.fix)


def _show(call: Invocation, host: str | None, answer: DraftValidation | DraftFix) -> ExitCode:
    last = answer.validation if isinstance(answer, DraftFix) else answer
    if call.out.json:
        made = draft_documents.fix(host, answer) if isinstance(answer, DraftFix) else None
        call.out.document(made or draft_documents.validation(host, last))
    elif isinstance(answer, DraftFix):
        for change in answer.changes:
            call.out.line(change)
        call.out.line(f"{answer.target} is written; {answer.source} is as it was")
        call.out.line()
    show(last, call.out)
    return ExitCode.FAILED if last.errors else ExitCode.DONE


def show(value: DraftValidation, out: Output) -> None:
    """The draft in two lines, then each finding, then the sum."""
    layers = ", ".join(map(str, value.layer_ids)) or "not named"
    out.line(f"{value.path}: {value.format} format, {value.architecture or 'no architecture'}")
    size = f"{plural(value.tensors, 'tensor')}, {value.parameters / 1e6:.1f} million values, {gb(value.weight_bytes)}"
    out.line(f"{size}; layers {layers}; drafts {value.draft_vocabulary} of {value.vocabulary} tokens")
    if value.verifier:
        out.line(f"beside the verifier {value.verifier}")
    for finding in value.findings:
        out.line()
        _finding(finding, out)
    out.line()
    out.line(_sum(value))


def _finding(finding: DraftFinding, out: Output) -> None:
    fixable = " (--fix)" if finding.fixable else ""
    out.line(f"{finding.level.upper():8}{finding.rule:4} {finding.title}")
    out.line(f"             {finding.evidence}")
    out.line(f"             vLLM {finding.vllm}{_SILENT.get(finding.effect, '')}")
    out.line(f"             {finding.remedy}{fixable}  [{finding.source}]")


def _sum(value: DraftValidation) -> str:
    levels = [finding.level for finding in value.findings]
    counts = [plural(levels.count(level), level) for level in ("error", "warning", "note") if level in levels]
    without = f"; {', '.join(value.not_judged)} need a verifier: --verifier DIR" if value.not_judged else ""
    unseen = "" if value.layers_checked else f"; the tensors of {value.architecture}'s layers are not checked"
    return f"{', '.join(counts) or 'nothing found'}{unseen}{without}"
