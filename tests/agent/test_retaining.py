"""The recommended policy through the real engine: what goes, what the trainer then finds, and undo."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Optional

import pytest
from fixtures import training_runs as made
from jobkit import Bench

from pipeline.plan.events import EpochSaved
from remote.disk.deletion import Deletion
from remote.disk.retaining import retain
from remote.disk.survey import Survey
from remote.jobs.pruning import Retention
from remote.policy import load
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.errors import FAILED, RequestError
from remote.protocol.jobs import DONE, EVENT_MESSAGE
from remote.protocol.trash import TRASHED, Receipt


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


TRAINING = """
import json
run, told = {run!r}, open(os.path.join({job!r}, "progress.jsonl"), "a", buffering=1)
def saved(epoch):
    event = dict(t=time.time(), event="epoch_saved", path=os.path.join(run, str(epoch)), epoch=epoch)
    told.write(json.dumps(event) + "\\n")
saved(3)
while not os.path.exists("go on"):
    time.sleep(0.05)
"""


def trained(tmp_path: Path, retention: str, run: Path) -> Bench:
    bench = Bench(tmp_path)
    code = TRAINING.format(run=str(run), job=bench.directory)
    bench.write(code, watcher="events", parameters={"retention": retention}).start()
    (tmp_path / "go on").touch()
    bench.wait_for(DONE)
    return bench


def test_a_job_prunes_its_run_when_an_epoch_is_saved(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", [2.0, 1.5, 1.2, 1.3], best=2)
    bench = trained(tmp_path, LEVEL_WHOLE, run)
    assert epochs(run) == ["2", "3"]
    told = [event.text for event in bench.store.events(bench.id, 0) if event.kind == EVENT_MESSAGE]
    receipt = engine(tmp_path).trash().receipts[0]
    assert told == [f"Retention moved 2 into the trash (0, 1); undo {receipt.id} brings them back."]
    assert receipt.who.startswith(f"{bench.id} as ")
    engine(tmp_path).undo(receipt.id, "ann")
    assert epochs(run) == ["0", "1", "2", "3"]


def test_a_job_without_retention_keeps_everything(tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", [2.0, 1.5, 1.2, 1.3], best=2)
    trained(tmp_path, "off", run)
    assert epochs(run) == ["0", "1", "2", "3"]


def test_what_goes_wrong_is_said_once_and_the_next_epoch_is_tried_again(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str]] = []

    def prune(run: str, level: str, job: str) -> Optional[Receipt]:
        asked.append((run, level, job))
        raise RequestError(FAILED, "the journal cannot be written")

    retention = Retention(LEVEL_TRIM, "train-1", prune)
    for count in (1, 2):
        for _ in range(2):  # the same epochs seen again start nothing
            retention.offer([EpochSaved(f"/run/{number}", number) for number in range(count)])
            retention.wait(5)
    assert asked == [("/run", LEVEL_TRIM, "train-1")] * 2
    assert list(retention.news()) == [(False, "Retention: the journal cannot be written.")]


def test_a_pass_that_hangs_holds_up_nothing() -> None:
    held, began = threading.Event(), threading.Event()

    def prune(run: str, level: str, job: str) -> Optional[Receipt]:
        began.set()
        held.wait(20)
        return None

    retention = Retention(LEVEL_TRIM, "train-1", prune)
    for number in range(5):
        retention.offer([EpochSaved(f"/run/{number}", number)])
    assert began.wait(5) and not retention.news()
    held.set()
    retention.wait(5)
