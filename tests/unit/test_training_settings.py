from __future__ import annotations

import shlex
from typing import Any

import pytest

from pipeline.plan import training
from pipeline.plan.stage import resolve
from pipeline.plan.training import Data, Machine, Settings, SettingsError, Shape
from pipeline.plan.training_stages import TRAIN

KIMI = Shape(hidden=7168, vocabulary=163840, draft_vocabulary=32000)
SMALL = Shape(hidden=576, vocabulary=49152, draft_vocabulary=4096)
STORY = Data(samples=1000, tokens=503_000, longest=2048)
H200 = Machine(gpus=1, cores=16, gpu_memory=143_771 * 1024**2, shared_memory=64 * 1024**3)
EIGHT = Machine(gpus=8, cores=128, gpu_memory=95 * 1024**3, shared_memory=256 * 1024**3)
CPU = Machine(gpus=0, cores=2)


def choose(machine: Machine, data: Data = STORY, shape: Shape = KIMI, **given: Any) -> Settings:
    return training.choose(resolve(TRAIN, given, {}), machine, data, shape)


def why(settings: Settings, name: str) -> str:
    return next(choice.sentence for choice in settings.choices if choice.name == name)


def test_the_story_on_one_gpu_is_packed_with_adamw_and_the_fused_loss() -> None:
    settings = choose(H200)
    assert settings.values["total_seq_len"] == 8192
    assert settings.values["processes"] == 1
    assert settings.values["optimizer"] == "adamw" and settings.values["fused_optimizer"] is True
    assert settings.values["loss_implementation"] == "fused"
    assert settings.steps_per_epoch == pytest.approx(58, abs=3)


@pytest.mark.parametrize(
    ("hidden", "epochs", "optimizer"),
    [(2048, 20, "muon"), (2048, 2, "adamw"), (4096, 20, "adamw"), (7168, 100, "adamw")],
)
def test_muon_is_chosen_only_where_it_was_seen_to_end_higher_at_little_cost(
    hidden: int, epochs: int, optimizer: str
) -> None:
    settings = choose(H200, shape=Shape(hidden, 32_000, 8192), epochs=epochs)
    assert settings.values["optimizer"] == optimizer


def test_a_small_data_set_is_not_spread_over_gpus_that_would_leave_few_steps() -> None:
    assert choose(EIGHT).values["processes"] == 1
    large = choose(EIGHT, Data(50_000, 25_000_000, 8000))
    assert large.values["processes"] == 8
    assert "of 8 GPUs" in why(large, "processes")


def test_packing_stops_where_an_epoch_would_have_few_steps() -> None:
    assert choose(H200, Data(100, 50_000, 900)).values["total_seq_len"] == 1024
    assert choose(H200, Data(600, 300_000, 900)).values["total_seq_len"] == 4096


def test_a_step_is_never_shorter_than_the_longest_sample() -> None:
    assert choose(H200, Data(100, 50_000, 12_000)).values["total_seq_len"] == 16384
    assert choose(CPU, Data(60, 6827, 136), SMALL).values["total_seq_len"] == 256


def test_packing_fits_the_gpus_memory() -> None:
    small_gpu = Machine(gpus=1, cores=16, gpu_memory=40 * 1024**3)
    length = choose(small_gpu).values["total_seq_len"]
    assert length < 8192
    need = training.static_bytes(KIMI) + length * training.activation_bytes(KIMI)
    assert need <= 0.9 * 40 * 1024**3 or length == 2048


def test_the_memory_model_agrees_with_what_an_h200_showed() -> None:
    grown = (training.activation_bytes(KIMI) * (8192 - 512)) / 1024**2
    assert grown == pytest.approx(45_929 - 31_999, rel=0.1)
    assert training.static_bytes(KIMI) / 1024**2 == pytest.approx(31_000, rel=0.1)


def test_the_size_of_a_checkpoint_agrees_with_what_was_written() -> None:
    values = {**choose(H200).values, "keep_embedding": True}
    assert training.checkpoint_bytes(values, KIMI) == pytest.approx(8.58e9, rel=0.03)
    slim = training.checkpoint_bytes({**values, "keep_embedding": False}, KIMI)
    assert training.checkpoint_bytes(values, KIMI) - slim == 163840 * 7168 * 2


@pytest.mark.parametrize(("every", "count"), [(1.0, 20), (10.0, 3), (20.0, 2), (0.5, 20)])
def test_how_many_checkpoints_stay(every: float, count: int) -> None:
    assert training.checkpoints({"checkpoint_every": every, "epochs": 20}) == count


def test_on_a_cpu_everything_gets_what_runs_there() -> None:
    values = choose(CPU, Data(60, 6827, 136), SMALL).values
    expected = {"optimizer": "adamw", "loss_implementation": "eager", "attention": "sdpa", "states_dtype": "float32"}
    assert {name: values[name] for name in expected} == expected
    assert values["fused_optimizer"] is False and values["loader_workers"] == 1 and values["log_every"] == 1


def test_the_user_overrules_every_choice() -> None:
    given = {
        "total_seq_len": 512,
        "processes": 2,
        "optimizer": "muon",
        "lr": 0.002,
        "loader_workers": 7,
        "prefetch": 3,
        "loss_implementation": "eager",
        "attention": "eager",
        "states_dtype": "float16",
        "fused_optimizer": False,
        "log_every": 5,
    }
    settings = choose(EIGHT, **given)
    assert {name: settings.values[name] for name in given} == given
    assert all(choice.given for choice in settings.choices)
    assert why(settings, "optimizer") == "optimizer=muon: as given"


def test_loaders_do_not_fill_shared_memory() -> None:
    tight = Machine(gpus=1, cores=16, shared_memory=4 * 1024**3)
    values = choose(tight).values
    assert values["loader_workers"] * values["prefetch"] * 8192 * 4 * 7168 * 2 <= 2 * 1024**3 or values["prefetch"] == 1


def test_a_checkpoint_rhythm_that_would_miss_the_last_epoch_is_refused() -> None:
    with pytest.raises(SettingsError, match="a divisor of 10"):
        choose(H200, checkpoint_every=3)
    assert choose(H200, checkpoint_every=5).values["checkpoint_every"] == 5
    assert choose(H200, checkpoint_every=0.25).values["checkpoint_every"] == 0.25


@pytest.mark.parametrize("extra", ["--save-best", "--save-path=/x", "--no-resume-from-checkpoint", '--x "'])
def test_extra_options_that_would_break_the_stage_are_refused(extra: str) -> None:
    with pytest.raises(SettingsError):
        choose(H200, trainer_options=extra)


def test_the_command_of_one_process_and_of_many() -> None:
    values = choose(
        H200, verifier="/m/Kimi-K2.5", draft_vocab_size=32000, trainer_options="--full-attention-indices 0"
    ).values
    options = training.trainer_options(values, "/w/data_1k/prepared", "/w/output_1k")
    one = training.argv("/ml/bin/python", values, ["--records", "/w/output_1k/metrics.jsonl"], options)
    assert one[:3] == ("/ml/bin/python", "-m", "pipeline.training.trainer")
    text = shlex.join(one)
    for part in (
        "-- --verifier-name-or-path /m/Kimi-K2.5 --data-path /w/data_1k/prepared --save-path /w/output_1k",
        "--draft-vocab-size 32000",
        "--epochs 10 --total-seq-len 8192 --train-data-ratio 0.9",
        "--optimizer adamw --lr 0.001",
        "--checkpoint-freq 1 ",
        "--on-missing raise --full-attention-indices 0",
    ):
        assert part in text, part
    assert "--save-best" not in text
    many = training.argv("/ml/bin/python", {**values, "processes": 8}, ["--records", "r"], options)
    assert many[1:6] == ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8")
    assert many[6:8] == ("-m", "pipeline.training.trainer")


def test_layer_ids_reach_the_trainer_as_numbers() -> None:
    options = training.trainer_options(choose(H200, layer_ids="2,30,58").values, "p", "o")
    place = options.index("--target-layer-ids")
    assert options[place + 1 : place + 4] == ["2", "30", "58"]


def test_a_setting_can_be_replaced_with_its_reason() -> None:
    settings = choose(H200).replaced("loss_implementation", "eager", "it could not be compiled")
    assert settings.values["loss_implementation"] == "eager"
    assert why(settings, "loss_implementation") == "loss_implementation=eager: it could not be compiled"
