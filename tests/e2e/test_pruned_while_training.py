"""A real training run that is pruned while it validates, stopped, and continued: the best still wins."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fixtures.stages import ROOT, Workspace, finished, wait_for

from pipeline.plan import events
from pipeline.training import checkpoints
from remote import procfs
from remote.disk.retaining import engine
from remote.policy import load
from remote.protocol.artifacts import LEVEL_WHOLE
from remote.protocol.trash import RESTORED, TRASHED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PYTHON = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline")) / "ml" / "bin" / "python"

EPOCHS = 14
ENOUGH = 5
"""Epochs that are saved when the pruning comes: more than best, newest two and one to resume from."""

GIVEN: dict[str, Any] = {"loader_workers": 0, "total_seq_len": 64, "lr": 0.2, "epochs": EPOCHS, "training_share": 0.3}
"""The learning rate is far too high: after a good epoch comes a worse one, so that the best is not the newest."""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment at {PYTHON}")
    script = ROOT / "tests" / "fixtures" / "tiny_verifier.py"
    subprocess.run([PYTHON, script, tmp_path, "1k"], check=True, capture_output=True)
    return Workspace(tmp_path, str(PYTHON), verifier=str(tmp_path / "verifier"))


def told(directory: Path) -> list[events.Event]:
    path = directory / events.FILE
    lines = path.read_text().splitlines() if path.exists() else []
    return [item[1] for item in map(events.decode, lines) if item]


def validates(directory: Path, epochs: int) -> bool:
    """Whether the validation goes on that follows so many saved epochs, or more."""
    phases = [event.name for event in told(directory) if isinstance(event, events.Phase)]
    return phases.count("save") >= epochs and phases[-1] == "validate"


def saved(*directories: Path) -> dict[int, events.EpochSaved]:
    """Each epoch that was saved, with what its validation gave."""
    every = [event for directory in directories for event in told(directory) if isinstance(event, events.EpochSaved)]
    return {event.epoch: event for event in every}


def validated(*directories: Path) -> dict[int, events.EpochSaved]:
    """Those whose validation came to its end."""
    return {epoch: event for epoch, event in saved(*directories).items() if event.validation_loss is not None}


def best_two(of: dict[int, events.EpochSaved]) -> tuple[int, int]:
    """The best by validation loss, which the trainer's link names, and by predicted acceptance, which is exported."""
    lowest = min(of, key=lambda epoch: of[epoch].validation_loss or 0.0)
    return lowest, max(of, key=lambda epoch: of[epoch].predicted_acceptance or 0.0)


def hold(pid: int, number: int) -> None:
    """A signal to the trainer and what it has started, so that it stands in the middle of what it does."""
    for record in procfs.descendants([pid]):
        os.kill(record.pid, number)


def held_in_validation(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Stops the processes of the stage in the middle of a validation; in the next one where they were faster."""
    while True:
        wait_for(lambda: validates(directory, ENOUGH), process)
        hold(process.pid, signal.SIGSTOP)
        time.sleep(0.5)  # the stage writes down what the trainer has told it
        if validates(directory, ENOUGH):
            return
        hold(process.pid, signal.SIGCONT)


def aged(folder: Path) -> None:
    """As if it had been written an hour ago: what is young may still be being written, and is left alone."""
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - 3600,) * 2)


def test_the_best_wins_and_training_goes_on(workspace: Workspace) -> None:
    output = workspace.run_of().output
    process, first = workspace.start("train", **GIVEN)
    held_in_validation(process, first)
    try:
        before = {epoch: os.stat(output / str(epoch)).st_ino for epoch in checkpoints.epochs(output)}
        for epoch in before:
            aged(output / str(epoch))
        deletion = engine(load(str(workspace.root), False, ()))
        plan = deletion.plan_recommended(str(output), LEVEL_WHOLE)
        receipt = deletion.prune(plan.id, plan.fingerprint, "", "ann", None)
    finally:
        hold(process.pid, signal.SIGCONT)
    gone = {int(Path(item.path).name) for item in receipt.items}
    assert receipt.state == TRASHED and gone and all(item.state == TRASHED for item in receipt.items)
    known = {epoch: event for epoch, event in validated(first).items() if epoch in before}
    assert gone.isdisjoint({*sorted(before)[-2:], *best_two(known)})
    assert set(checkpoints.epochs(output)) == set(before) - gone

    wait_for(lambda: len(validated(first)) > len(before), process)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    stopped = finished(process, first)
    assert stopped.code == 143, stopped.output

    rest, second = workspace.start("train", **GIVEN)
    rest.wait(300)
    run = finished(rest, second)
    assert run.code == 0, run.output
    assert sorted(saved(first, second)) == list(range(EPOCHS)), "every epoch was trained"
    every = validated(first, second)
    assert len(every) >= EPOCHS - 1, "the stop can have cut one validation short"
    lowest, highest = best_two(every)
    assert os.readlink(output / "checkpoint_best") == str(lowest)
    assert run.evidence["best_epoch"] == highest + 1, "people count from 1"
    assert all(checkpoints.fault(output / str(epoch)) is None for epoch in (lowest, highest))
    assert not any((output / str(epoch)).exists() for epoch in gone), "what was pruned is not trained again"

    undone = engine(load(str(workspace.root), False, ())).undo(receipt.id, "ann")
    assert undone.state == RESTORED
    assert {epoch: os.stat(output / str(epoch)).st_ino for epoch in gone} == {epoch: before[epoch] for epoch in gone}
