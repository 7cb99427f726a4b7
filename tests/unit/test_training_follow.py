"""The trainer's records as events of the stage, and what the stage makes of a trainer that fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.plan import training
from pipeline.plan.events import EpochSaved
from pipeline.plan.stage import resolve
from pipeline.plan.training import Data, Machine, Settings, Shape
from pipeline.plan.training_stages import TRAIN
from pipeline.stages import train
from pipeline.stages.errors import StageError
from pipeline.training import checkpoints
from pipeline.training.run import Follower, Outcome


class Stage:
    """What a stage is told."""

    def __init__(self, output: Path = Path("/nowhere")) -> None:
        self.counts: list[tuple[Any, ...]] = []
        self.figures: dict[str, Any] = {}
        self.said: list[str] = []
        self.phases: list[str] = []
        self.saved: list[EpochSaved] = []
        self.run = SimpleNamespace(output=output)

    def phase(self, name: str, detail: str = "") -> None:
        self.phases.append(name)

    def count(self, *values: Any) -> None:
        self.counts.append(values)

    def metrics(self, step: int | None, values: dict[str, Any]) -> None:
        self.figures.update(values)

    def message(self, text: str, level: str = "info") -> None:
        self.said.append(f"{level}: {text}")

    def epoch_saved(self, saved: EpochSaved) -> None:
        self.saved.append(saved)

    def check_stop(self) -> None:
        pass


def follow(*records: dict[str, Any]) -> tuple[Stage, Outcome]:
    stage, outcome = Stage(), Outcome()
    follower = Follower(stage, outcome)  # type: ignore[arg-type]
    for record in records:
        follower.read(record)
    follower.close()
    return stage, outcome


def step(t: float, number: int) -> dict[str, Any]:
    return {"kind": "step", "t": t, "epoch": 0, "local_step": number, "global_step": number, "waiting": 0.1}


EPOCH = {"kind": "epoch", "t": 0.0, "epoch": 1, "epochs": 10, "steps": 50, "total": 500, "global_step": 50}


def test_progress_is_steps_of_the_total_with_a_rate_of_steps_alone() -> None:
    save = {"kind": "phase", "t": 12.0, "name": "save", "detail": "0"}
    stage, outcome = follow(EPOCH, step(10.0, 51), step(11.0, 55), save, step(100.0, 56), step(102.0, 60))
    assert [count[:3] for count in stage.counts] == [(n, 500, "steps") for n in (51, 55, 56, 60)]
    assert [count[3] for count in stage.counts] == [None, 4.0, None, 2.0]
    assert (stage.figures["epoch"], stage.figures["epochs"], stage.figures["epoch_steps"]) == (2, 10, 50)
    assert stage.figures["waiting_for_data"] == 0.1
    assert outcome.stepped


def test_figures_of_a_step_have_every_digit_and_one_learning_rate() -> None:
    record = {
        "kind": "train",
        "t": 1.0,
        "step": 3,
        "train": {"loss": 1.2345678901, "full_acc_0": 0.5, "bad": None},
        "profile": {"tokens_per_s": 26050.0},
        "lr": {"Muon": 0.001, "AdamW": 0.0005},
    }
    stage, _ = follow(record)
    assert stage.figures["loss"] == 1.2345678901 and stage.figures["full_acc_0"] == 0.5
    assert stage.figures["learning_rate"] == 0.001 and stage.figures["tokens_per_second"] == 26050.0
    assert stage.figures["bad"] is None, "it was not finite, which takes an older value away"


def test_validation_becomes_a_prediction() -> None:
    values = {"full_acc_0_epoch": 0.6, "full_acc_1_epoch": 0.3, "cond_acc_0_epoch": 0.6, "loss_epoch": 3.5}
    stage, _ = follow({"kind": "val", "t": 1.0, "step": 9, "val": values, "epoch": 2})
    assert stage.figures["predicted_acceptance"] == pytest.approx(1.9)
    assert stage.said == ["info: Epoch 3: validation predicts acceptance length 1.90 (0.600/0.300)."]


def saved(epoch: int | str, local_step: int = 0) -> dict[str, Any]:
    place = {"epoch": epoch, "local_step": local_step, "global_step": 100, "path": f"/out/{epoch}"}
    return {"kind": "saved", "t": 1.0, "bytes": 7, "seconds": 0.1, **place}


def test_an_epoch_is_told_as_saved_with_its_validation() -> None:
    values = {"full_acc_0_epoch": 0.6, "cond_acc_0_epoch": 0.6, "loss_epoch": 3.5}
    validated = {"kind": "val", "t": 2.0, "step": 9, "val": values, "epoch": 0}
    stage, _ = follow(saved(0), validated, EPOCH, saved(1), {**EPOCH, "epoch": 2}, saved(2))
    assert stage.saved == [
        EpochSaved("/out/0", 0, 100, 7, 1.6, 3.5),
        EpochSaved("/out/1", 1, 100, 7),
        EpochSaved("/out/2", 2, 100, 7),
    ]
    assert follow(saved("interrupted"), saved(3, local_step=12))[0].saved == []


def test_checkpoints_and_warnings_are_said_and_failures_kept() -> None:
    stage, outcome = follow(
        {**saved(0), "bytes": 5_830_000_000, "seconds": 6.9},
        {**saved("interrupted"), "bytes": 10},
        {"kind": "text", "t": 3.0, "level": "warning", "text": "No val loader"},
        {"kind": "text", "t": 3.0, "level": "info", "text": "nothing"},
        {"kind": "failed", "t": 4.0, "error": "ValueError: x", "compiling": True},
    )
    assert stage.said == [
        "info: Epoch 1 is saved: 5,830 MB in 6.9 s.",
        "info: The interrupted epoch is saved: 0 MB in 0.1 s.",
        "warning: No val loader",
    ]
    assert outcome.saved == [(0, 5_830_000_000), ("interrupted", 10)]
    assert outcome.compiling and outcome.error == "ValueError: x"


def settings(**given: Any) -> Settings:
    machine = Machine(gpus=1, cores=8)
    return training.choose(resolve(TRAIN, given, {}), machine, Data(1000, 503_000, 2048), Shape(64, 512, 128))


def attempts(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, outcomes: list[Outcome], chosen: Settings, done: bool
) -> list[str]:
    """The loss of each attempt that the stage makes."""
    tried: list[str] = []

    def attempt(_: Any, used: Settings) -> Outcome:
        tried.append(used.values["loss_implementation"])
        return outcomes[len(tried) - 1]

    monkeypatch.setattr(train, "_attempt", attempt)
    monkeypatch.setattr(checkpoints, "finished", lambda *_: done and len(tried) == len(outcomes))
    train._train(stage, chosen, 10)  # type: ignore[arg-type]
    return tried


def test_a_fused_loss_that_does_not_compile_gives_way_to_the_eager_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    failed = Outcome(code=1, compiling=True, error="AssertionError: ListVariable\nmore")
    tried = attempts(monkeypatch, stage, [failed, Outcome()], settings(), done=True)
    assert tried == ["fused", "eager"]
    assert stage.said[0] == "warning: AssertionError: ListVariable"
    assert "starts again with the eager one" in stage.said[1]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(code=1, compiling=False, error="ValueError: x"),
        Outcome(code=1, compiling=True, stepped=True, error="later"),
    ],
)
def test_other_failures_are_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: Outcome) -> None:
    with pytest.raises(StageError, match="Training ended before epoch 10"):
        attempts(monkeypatch, Stage(tmp_path), [outcome], settings(), done=False)


def test_a_loss_that_the_user_chose_is_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = Outcome(code=1, compiling=True, error="it fails")
    with pytest.raises(StageError, match="it fails"):
        attempts(monkeypatch, Stage(tmp_path), [failed], settings(loss_implementation="fused"), done=False)


def test_lack_of_memory_has_its_own_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = Outcome(code=1, error="OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(StageError) as raised:
        attempts(monkeypatch, Stage(tmp_path), [failed], settings(), done=False)
    assert raised.value.klass == "gpu_memory" and "total_seq_len" in raised.value.remedy
