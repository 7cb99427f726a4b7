"""The recommended policy through the real engine: what goes, what the trainer then finds, and undo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fixtures import training_runs as made

from remote.disk.deletion import Deletion
from remote.disk.retaining import retain
from remote.disk.survey import Survey
from remote.policy import load
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.trash import TRASHED


def engine(workspace: Path) -> Deletion:
    survey = Survey(str(workspace), dict, {"HOME": "/nonexistent"})
    return Deletion(load(str(workspace), False, ()), survey.verdicts, survey.checkpoints_now)


def epochs(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir() if path.name.isdecimal())


def test_after_each_epoch_best_and_newest_two_are_there(tmp_path: Path) -> None:
    losses = [2.0, 1.5, 1.6, 1.4, 1.7, 1.8]
    run = made.run(tmp_path / "run", [losses[0]], best=0)
    for epoch in range(1, len(losses)):
        made.checkpoint(run / str(epoch), epoch, modified=made.LONG_AGO + epoch * made.EPOCH_SECONDS)
        best = min(range(epoch + 1), key=losses.__getitem__)
        (run / "checkpoint_best").unlink()
        made.link(run / "checkpoint_best", str(best), made.LONG_AGO)
        retain(engine(tmp_path), str(run), LEVEL_WHOLE, "train-1")
        kept = {str(number) for number in (epoch, epoch - 1, best)}
        assert set(epochs(run)) == kept, f"after epoch {epoch}"
        assert (run / "checkpoint_best").exists()


def test_during_validation_the_newest_stays_and_undo_brings_the_others_back(tmp_path: Path) -> None:
    """The newest is saved before ``checkpoint_best`` can move to it."""
    run = made.run(tmp_path / "run", [2.0, 1.5, 1.2, 1.3, None], best=2)
    before = {name: os.stat(run / name).st_ino for name in epochs(run)}
    receipt = retain(engine(tmp_path), str(run), LEVEL_WHOLE, "train-1")
    assert receipt and receipt.state == TRASHED and epochs(run) == ["2", "3", "4"]
    assert retain(engine(tmp_path), str(run), LEVEL_WHOLE, "train-1") is None, "nothing more may go"
    engine(tmp_path).undo(receipt.id, "ann")
    assert {name: os.stat(run / name).st_ino for name in epochs(run)} == before


def test_trimmed_ones_stay_servable(tmp_path: Path) -> None:
    run = made.recorded_run(tmp_path)
    assert retain(engine(tmp_path), str(run), LEVEL_TRIM, "train-1")
    assert epochs(run) == ["0", "1", "2", "3"]
    found = {item.name: item for item in Survey(str(tmp_path), dict, {}).checkpoints("output_1k").checkpoints}
    assert (found["0"].state, found["0"].servable, found["0"].resumable) == ("trimmed", True, False)
    assert all(found[name].resumable for name in "123"), (
        "3 is the best by loss, 1 by acceptance, 2 one of the newest two"
    )


@pytest.mark.parametrize("level", [LEVEL_WHOLE, LEVEL_TRIM])
def test_a_torn_newest_goes_so_that_the_trainer_can_go_on(tmp_path: Path, level: str) -> None:
    run = made.run(tmp_path / "run", [2.0, 1.5, 1.2], best=2)
    made.checkpoint(run / "3", 3)
    made.cut(run / "3" / "model.safetensors")
    assert retain(engine(tmp_path), str(run), level, "train-1")
    assert "3" not in epochs(run) and "2" in epochs(run)
