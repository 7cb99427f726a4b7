"""A training run of ours as an agent would tell it: its job, its course and its checkpoints."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fixtures import disk_records
from tui_fakes import WALL

from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.jobs import Job
from remote.protocol.progress import Eta, Phase, Progress
from remote.protocol.series import MAX_POINTS, SavedCheckpoint, Series, TrainingSeries
from remote.protocol.training import Training

RUN = disk_records.RUN
STEPS, EPOCH = 3_912, 1_000
ETA = Eta(980.0, 900.0, 1_090.0, "from 3,912 steps at 6.0 steps/s", 0.39)


def train_job(**changes: Any) -> Job:
    figures = {
        "epoch": 4.0, "epochs": 10.0, "loss": 1.84, "full_acc_0": 0.61, "full_acc_1": 0.26, "full_acc_2": 0.08,
        "cond_acc_0": 0.61, "cond_acc_1": 0.42, "cond_acc_2": 0.30, "learning_rate": 6.1e-5,
        "tokens_per_second": 41_234.0, "waiting_for_data": 0.03, "validation_loss": 1.97,
        "validation_cond_acc_0": 0.6, "predicted_acceptance": 1.91, "steps_per_second": 6.0,
    }  # fmt: skip
    progress = Progress(
        "train", (Phase("import", 0, 9), Phase("train", 9)), STEPS, 10_000, "steps", 39.1, figures=figures, rate=6.0,
        eta=ETA,
    )  # fmt: skip
    base = Job(
        id="train-20260528-203000-1a2b", stage="train", kind="task", state="running", created=WALL - 660,
        host="gpu-box", parameters={"run": "1k", "epochs": 10}, progress=progress,
        command_line="python -m pipeline.stages train spec.json", started=WALL - 651, seconds=651.0, pids=(4_500,),
    )  # fmt: skip
    return replace(base, **changes)


def course(**changes: Any) -> TrainingSeries:
    steps = tuple(range(1, STEPS, STEPS // MAX_POINTS + 1))

    def curve(name: str, high: float, low: float, wave: float) -> Series:
        values = (low + (high - low) * math.exp(-step / 700) + wave * math.sin(step * 0.7) for step in steps)
        return Series(name, steps, tuple(values))

    validated = (EPOCH, 2 * EPOCH, 3 * EPOCH)
    saved = tuple(
        SavedCheckpoint(f"{RUN}/{number}", number, step, 8_900_000_000, WALL - 600 + 160 * number)
        for number, step in enumerate(validated)
    )
    base = TrainingSeries(
        job="train-20260528-203000-1a2b",
        folder=RUN,
        source=f"{RUN}/metrics.jsonl",
        series=(
            curve("loss", 11.0, 1.8, 0.1),
            curve("accuracy_0", 0.0, 0.62, 0.01),
            curve("accuracy_1", 0.0, 0.43, 0.01),
            curve("accuracy_2", 0.0, 0.30, 0.01),
            curve("predicted_length", 1.0, 1.95, 0.02),
            Series("validation_loss", validated, (2.41, 2.10, 1.97)),
            Series("validation_predicted_length", validated, (1.58, 1.79, 1.91)),
        ),
        epochs=(0, EPOCH, 2 * EPOCH, 3 * EPOCH),
        checkpoints=saved,
    )
    return replace(base, **changes)


def adopted_training() -> AdoptedList:
    training = Training(
        "training", 2, 10, 1_204, 10_000, False, 6.02, 40_000.0, 0.03, 1.92, (2.4, 2.2, 2.0, 1.92),
        (0.61, 0.42, 0.3), (0.5, 0.55, 0.6, 0.61), 1.62, 6.1e-5,
    )  # fmt: skip
    record = Adopted(
        "adopted-4711", "output_2k", "training", "running", user="alice", own=False, started=WALL - 60, seconds=60.0,
        log="/data/train.log", training=training,
    )  # fmt: skip
    return AdoptedList((record,))
