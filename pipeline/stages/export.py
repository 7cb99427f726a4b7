"""The stage ``export``: one epoch of a training run as a draft that engines load."""

from __future__ import annotations

import time
from pathlib import Path

from pipeline.export import ExportError, export, verify
from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute
from pipeline.training import checkpoints, records

BEST, LAST = "best", "last"


def run(spec_path: str) -> int:
    """Runs the stage and returns its exit code."""
    return execute(spec_path, work)


def work(stage: StageRun) -> None:
    """Exports the chosen checkpoint, or finds that it is exported."""
    target = stage.run.draft
    with stage.lock(target):
        stage.phase("choose")
        epoch = _epoch(stage)
        checkpoint = stage.run.output / str(epoch)
        wrong = checkpoints.fault(checkpoint, resumable=False)
        if wrong is not None:
            raise StageError(
                f"The checkpoint is not whole: {wrong}.", str(checkpoint), remedy="Give another: checkpoint=N."
            )
        inputs = {
            **stage.input_of(checkpoint / checkpoints.MODEL, "train"),
            **stage.input_of(checkpoint / "config.json", "train"),
        }
        if stage.fresh(inputs):
            return
        verifier = verifying.folder(stage)
        _make_room(stage, target)
        stage.phase("write", target.name)
        try:
            export(checkpoint, target, Path(verifier), stage.parameters["form"] == "full")
            stage.phase("verify")
            exported = verify(target, Path(verifier))
        except ExportError as error:
            raise StageError(f"{error.cause}.", error.file, error.field, "Export another epoch.") from None
        for doubt in exported.doubts:
            stage.message(f"{doubt.id}: {doubt.rule.title} ({doubt.evidence}). {doubt.rule.remedy}", "warning")
        stage.evidence("epoch", epoch + 1)
        stage.evidence("tensors", exported.tensors, "tensors", ok=exported.tensors > 0)
        stage.evidence("bytes", exported.bytes, "B", ok=exported.bytes > 0)
        stage.evidence("draft_vocab_size", exported.config["draft_vocab_size"], "tokens")
        stage.evidence("layer_ids", ",".join(str(number) for number in exported.config[AUX_LAYERS]))
        found = records.validations(stage.run.output / records.FILE).get(epoch)
        if found is not None:
            stage.evidence("predicted_acceptance", round(found.predicted, 4))
        stage.commit(inputs, {target: {"epoch": epoch, "bytes": exported.bytes}})


def _epoch(stage: StageRun) -> int:
    """The number of the checkpoint's folder, counted from 0."""
    output, wish = stage.run.output, str(stage.parameters["checkpoint"])
    there = checkpoints.epochs(output)
    if not there:
        raise StageError(
            "There is no checkpoint.", str(output), remedy="Run the stage train first.", klass="missing_input"
        )
    if wish.isdecimal():
        if int(wish) not in there:
            raise StageError(f"There is no checkpoint {wish}.", str(output), remedy=f"There are: {_listed(there)}.")
        return int(wish)
    whole = [number for number in there if checkpoints.fault(output / str(number), resumable=False) is None]
    if not whole:
        raise StageError("None of the checkpoints is whole.", str(output), remedy="Run the stage train again.")
    best = records.best(records.validations(output / records.FILE), whole) if wish == BEST else None
    if wish == BEST and best is None:
        stage.message("No validation is recorded: the last epoch is taken for the best.", "warning")
    return whole[-1] if best is None else best


def _make_room(stage: StageRun, target: Path) -> None:
    """An earlier export is kept under another name, and that is said."""
    if target.exists():
        kept = target.with_name(f"{target.name}_before_{time.strftime('%Y%m%d-%H%M%S')}")
        target.rename(kept)
        stage.message(f"The export that was there is kept as {kept.name}.", "warning")


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
