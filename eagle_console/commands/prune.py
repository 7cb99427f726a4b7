"""``prune``: a plan, a confirmation that shows all of it, and a receipt. Nothing is freed before the purge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from eagle_console import disk_documents, journal_copy
from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation, Refused, UsageError
from eagle_console.disk_words import absolute, below, freed_sentence, level_words
from eagle_console.exit_codes import ExitCode
from eagle_console.format import gb, plural
from eagle_console.output import Output
from eagle_console.person import person
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.trash import TRASHED, Plan, PlanItem, Receipt

RECOMMENDED = "recommended"
POLICIES = (RECOMMENDED,)


async def prune(call: Invocation) -> ExitCode:
    """Moves into the trash what was named, or what the policy says.

    :raises Refused: where a confirmation is missing.
    :raises RequestError: ``refused`` where nothing of what was named may go.
    """
    _check_words(call)
    async with call.host() as client:
        plan = await _plan(call, client)
        refused = refused_items(plan, _paths(call, client))
        show(plan, client.hello.workspace, _listing(call))
        if refused and not plan.items:
            if call.out.json:
                call.out.document(disk_documents.plan(plan, refused))
                return ExitCode.REFUSED
            raise RequestError(REFUSED, f"nothing was moved: {refused[0].refused}")
        if call.arguments.dry_run or not plan.items:
            if call.out.json:
                call.out.document(disk_documents.plan(plan, refused))
            return ExitCode.FAILED if refused else ExitCode.DONE
        typed = _confirm(call, plan)
        receipt = await client.prune(plan, typed, person())
        if trouble := await journal_copy.update(client):
            call.out.say(trouble)
        workspace = client.hello.workspace
    return _show_receipt(call, receipt, refused, workspace)


def refused_items(plan: Plan, paths: Sequence[str]) -> list[PlanItem]:
    """What was asked for by name and stays."""
    return [item for item in plan.stays if item.path in paths]


def show(plan: Plan, workspace: str | None, out: Output) -> None:
    """Exactly what goes, what stays and why."""
    if plan.items:
        out.line(f"Goes to the trash: {plural(len(plan.items), 'item')}, {gb(plan.exclusive)} reclaimable")
        out.table(
            ("  WHAT", "TAKES", "FREES", "FILES", "PART", "WHY"),
            [
                (f"  {below(item.path, workspace)}", gb(item.allocated), gb(item.exclusive), f"{item.files:,}",
                 level_words(item.level), "; ".join(reason.text for reason in item.reasons))
                for item in plan.items
            ],
            right=(1, 2, 3),
        )  # fmt: skip
    else:
        out.line("Nothing goes to the trash.")
    if plan.stays:
        out.line(f"Stays: {plural(len(plan.stays), 'item')}")
        out.table(
            ("  WHAT", "TAKES", "WHY"),
            [
                # What stays is not always measured.
                (f"  {below(item.path, workspace)}", gb(item.allocated or None),
                 item.refused or "; ".join(reason.text for reason in item.reasons))
                for item in plan.stays
            ],
            right=(1,),
        )  # fmt: skip
    if plan.unseen:
        out.line(f"Cannot be seen from here: {plan.unseen}")


def _check_words(call: Invocation) -> None:
    paths, policy = call.arguments.paths, call.arguments.policy
    if not paths:
        raise UsageError("prune needs paths, or --policy recommended and the directory of a run")
    if policy and len(paths) != 1:
        raise UsageError(f"--policy {policy} takes one directory of a run")


async def _plan(call: Invocation, client: HostClient) -> Plan:
    workspace = client.hello.workspace
    if call.arguments.policy:
        level = call.arguments.level or call.target.profile.prune
        return await client.plan_recommended(absolute(call.arguments.paths[0], workspace), level)
    return await client.plan_prune(_paths(call, client), call.arguments.level or LEVEL_WHOLE)


def _paths(call: Invocation, client: HostClient) -> list[str]:
    """What was asked for by name; none where a policy chooses."""
    if call.arguments.policy:
        return []
    return [absolute(path, client.hello.workspace) for path in call.arguments.paths]


def _listing(call: Invocation) -> Output:
    """Where the plan is listed for people: in JSON mode beside the data."""
    return replace(call.out, json=False, data=call.out.talk) if call.out.json else call.out


def _confirm(call: Invocation, plan: Plan) -> str:
    """What was typed where the proof is weaker than the kernel's; else a yes is enough."""
    if not plan.confirm:
        trimmed = any(item.level == LEVEL_TRIM for item in plan.items)
        loses = " What is trimmed can be served but not resumed." if trimmed else ""
        call.confirm(f"Move {plural(len(plan.items), 'item')} into the trash? undo brings back all.{loses}", "prune")
        return ""
    typed: str | None = call.arguments.confirm
    if typed is None and sys.stdin.isatty():
        call.out.say(f"That nobody uses it cannot be fully proven here. Type {plan.confirm} to go on:")
        typed = sys.stdin.readline().strip()
    if typed != plan.confirm:
        wants = f"that nobody uses it cannot be fully proven here: it needs --confirm {plan.confirm!r}"
        raise Refused(f"{wants}; nothing was moved")
    return typed


def _show_receipt(call: Invocation, receipt: Receipt, refused: Sequence[PlanItem], workspace: str | None) -> ExitCode:
    moved = [item for item in receipt.items if item.state == TRASHED]
    left = [item for item in receipt.items if item.state != TRASHED]
    if call.out.json:
        call.out.document(
            {**disk_documents.receipt(receipt), "refused": [disk_documents.plan_item(item) for item in refused]}
        )
    for item in left:
        call.out.line(
            f"{below(item.path, workspace)}: {item.state.replace('_', ' ')}: {item.problem or 'no reason was given'}"
        )
    for other in refused:
        call.out.line(f"{below(other.path, workspace)}: stays: {other.refused}")
    if moved:
        host = call.target.profile.name
        call.out.line(f"{plural(len(moved), 'item')} in the trash as {receipt.id}. {freed_sentence(receipt)}.")
        call.out.line(f"  eagle-console undo {host} {receipt.id}")
        call.out.line(f"  eagle-console purge {host} {receipt.id}")
    if not left and not refused:
        return ExitCode.DONE
    return ExitCode.FAILED if moved else ExitCode.REFUSED
