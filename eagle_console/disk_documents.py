"""The JSON documents about artifacts, plans, receipts and the journal, described in docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence

from eagle_console.documents import Document
from eagle_console.journal_copy import Comparison
from remote.protocol.artifacts import Artifact, Checkpoint, CheckpointList, Triage
from remote.protocol.codec import to_wire
from remote.protocol.trash import Freed, Journal, Pin, Plan, PlanItem, Receipt, TrashList


def artifact(value: Artifact) -> Document:
    verdict = value.verdict
    return {
        "path": value.path,
        "kind": value.kind,
        "run": value.run or None,
        "detail": value.detail,
        "size": to_wire(value.size),
        "modified": value.modified,
        "movable": value.movable,
        "pinned": value.pinned,
        "verdict": verdict.word,
        "reasons": [to_wire(reason) for reason in verdict.reasons],
        "reclaim": verdict.reclaim or {},
        "rebuild_minutes": verdict.rebuild_minutes,
        "rebuild_basis": verdict.rebuild_basis,
        "proof": verdict.proof,
    }


def triage(value: Triage) -> Document:
    return {
        "workspace": value.workspace,
        "problem": value.problem,
        "observed": value.observed,
        "left_out": value.left_out,
        "artifacts": [artifact(item) for item in value.artifacts],
        "hidden": [artifact(item) for item in value.hidden],
    }


def checkpoint(value: Checkpoint) -> Document:
    return {
        "name": value.name,
        "state": value.state,
        "epoch": value.epoch,
        "step": value.step,
        "resumable": value.resumable,
        "servable": value.servable,
        "validation_loss": value.validation_loss,
        "predicted_acceptance": value.predicted_acceptance,
        "best": value.best,
        "newest": value.newest,
        **artifact(value.artifact),
    }


def checkpoints(value: CheckpointList) -> Document:
    return {
        "run": value.run,
        "problem": value.problem,
        "observed": value.observed,
        "checkpoints": [checkpoint(item) for item in value.checkpoints],
    }


def plan_item(value: PlanItem) -> Document:
    return {
        "path": value.path,
        "kind": value.kind,
        "level": value.level,
        "allocated": value.allocated,
        "exclusive": value.exclusive,
        "files": value.files,
        "reasons": [to_wire(reason) for reason in value.reasons],
        "refused": value.refused or None,
        "proof": value.proof,
    }


def plan(value: Plan, refused: Sequence[PlanItem] = ()) -> Document:
    """A plan; ``refused`` are those of what stays that were asked for."""
    return {
        "dry_run": True,
        "plan": value.id,
        "goes": [plan_item(item) for item in value.items],
        "stays": [plan_item(item) for item in value.stays],
        "refused": [item.path for item in refused],
        "reclaimable": value.exclusive,
        "fingerprint": value.fingerprint,
        "machine_id": value.machine_id,
        "boot_id": value.boot_id,
        "created": value.created,
        "expires": value.expires,
        "confirm": value.confirm or None,
        "unseen": value.unseen,
    }


def freed(value: Freed) -> Document:
    fields: Document = to_wire(value)
    return fields


def receipt(value: Receipt) -> Document:
    return {
        "receipt": value.id,
        "state": value.state,
        "items": [{**to_wire(item), "problem": item.problem or None} for item in value.items],
        "freed": freed(value.freed),
        "created": value.created,
        "expires": value.expires,
        "who": value.who,
        "why": value.why,
    }


def receipts(value: TrashList) -> Document:
    return {
        "receipts": [receipt(item) for item in value.receipts],
        "allocated": value.allocated,
        "left_out": value.left_out,
        "problem": value.problem,
    }


def pin(value: Pin) -> Document:
    return {"path": value.path, "pinned": value.pinned, "who": value.who, "time": value.wall}


def journal(value: Journal, compared: Comparison) -> Document:
    return {
        "entries": [to_wire(entry) for entry in value.entries],
        "broken": value.broken,
        "problem": value.problem,
        "copy": str(compared.path),
        "differs": list(compared.differs),
        "lost": list(compared.lost),
    }
