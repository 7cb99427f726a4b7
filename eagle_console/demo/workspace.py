"""The embedded host's workspace: the leftovers of two training runs beside a better one, at 1:1000 of their real sizes.

    output_1k   89 MB   ten epochs of a finished run, with optimizer states
    output_test 27 MB   three epochs of a trial run
    data_1k     27 MB   the hidden states of 1000 samples that both were trained on
    output_2k   27 MB   two epochs of the newest run, and a third that was killed while it was saved
    data_2k    2.7 MB   the hidden states that it was trained on
    data_test  213 kB   a small reference set that validates it

89 + 27 + 27 = 143 MB are stale: output_2k did better. The layout is that of speculators 0.9.0; sizes are what the files
take on the disk.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from eagle_console.demo.formats import blocks, safetensors, torch_file

README = """\
Simulated data of the eagle-console demo.

This folder has the layout of three EAGLE-3 training runs at 1:1000 of their real sizes. The files have valid headers
and meaningless values; nothing here was trained. It may be deleted at any time: the next demo makes it anew.
"""

MB = 1_000_000
VERIFIER_NAME = "moonshotai/Kimi-K2.5"
EPOCH_SECONDS = 166.0  # ten epochs in 27.7 minutes
DAY = 86_400.0

_HIDDEN, _INTERMEDIATE, _VOCAB = 256, 512, 2468
_DRAFT = {
    "fc.weight": ("BF16", (_HIDDEN, 3 * _HIDDEN)),
    "layers.0.hidden_norm.weight": ("BF16", (_HIDDEN,)),
    "layers.0.input_layernorm.weight": ("BF16", (_HIDDEN,)),
    "layers.0.post_attention_layernorm.weight": ("BF16", (_HIDDEN,)),
    "layers.0.self_attn.q_proj.weight": ("BF16", (_HIDDEN, 2 * _HIDDEN)),
    "layers.0.self_attn.k_proj.weight": ("BF16", (64, 2 * _HIDDEN)),
    "layers.0.self_attn.v_proj.weight": ("BF16", (64, 2 * _HIDDEN)),
    "layers.0.self_attn.o_proj.weight": ("BF16", (_HIDDEN, _HIDDEN)),
    "layers.0.mlp.gate_proj.weight": ("BF16", (_INTERMEDIATE, _HIDDEN)),
    "layers.0.mlp.up_proj.weight": ("BF16", (_INTERMEDIATE, _HIDDEN)),
    "layers.0.mlp.down_proj.weight": ("BF16", (_HIDDEN, _INTERMEDIATE)),
    "norm.weight": ("BF16", (_HIDDEN,)),
    "lm_head.weight": ("BF16", (_VOCAB, _HIDDEN)),
}  # fmt: skip

_LOSSES_1K = (2.913, 2.402, 2.161, 2.034, 1.958, 1.921, 1.897, 1.903, 1.911, 1.926)  # the best is epoch 6
_LOSSES_TEST = (3.402, 3.117, 3.054)
_LOSSES_2K = (2.204, 1.742, 1.611)  # the last one was never validated: its run was killed while it saved


def create_workspace(home: Path) -> Path:
    """The workspace below the demo's folder, made if it is missing; several processes may do this at once.

    It is built under another name and renamed, so that nobody ever sees half of it. What the user deletes inside it
    stays deleted.
    """
    workspace = home / "workspace"
    if workspace.is_dir():
        return workspace
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_abandoned(home)
    building = Path(tempfile.mkdtemp(prefix="workspace.new.", dir=home))
    try:
        _build(building, time.time())
        building.chmod(0o755)
        building.rename(workspace)  # fails on a non-empty folder: then another process was first
    except OSError:
        if not workspace.is_dir():
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return workspace


def _remove_abandoned(home: Path) -> None:
    """Removes what a process that was killed while building has left; a living one is done within seconds."""
    for path in home.glob("workspace.new.*"):
        if path.stat().st_mtime < time.time() - 600:
            shutil.rmtree(path, ignore_errors=True)


def _build(root: Path, now: float) -> None:
    (root / "README.txt").write_text(README)
    _set_time(root / "README.txt", now - 10 * DAY)
    test = _Inputs("data_1k", "")
    _run(root / "output_test", test, _LOSSES_TEST, 27 * MB, steps=100, epoch_seconds=17.0, ended=now - 9 * DAY)
    _data(root / "data_test", samples=8, total=213_000, ended=now - 10 * DAY)
    _data(root / "data_1k", samples=1000, total=27 * MB, ended=now - 10 * DAY)
    old, new = _Inputs("data_1k", ""), _Inputs("data_2k", "data_test")
    ended = now - 8 * DAY + 3600
    _run(root / "output_1k", old, _LOSSES_1K, 89 * MB, steps=1000, epoch_seconds=EPOCH_SECONDS, ended=ended)
    _data(root / "data_2k", samples=100, total=27 * MB // 10, ended=now - 2 * DAY)
    (root / "data_2k" / "hidden_states" / "hs_99.safetensors.lock").touch()  # its writer has left it there
    _set_time(root / "data_2k" / "hidden_states" / "hs_99.safetensors.lock", now - 2 * DAY)
    _run(root / "output_2k", new, _LOSSES_2K, 27 * MB, steps=2000, epoch_seconds=332.0, ended=now - DAY)
    _tear(root / "output_2k")


@dataclass(frozen=True)
class _Inputs:
    """What a run was trained on, and validated with, by name; the latter may be empty."""

    data: str
    validation: str


def _tear(run: Path) -> None:
    """What a kill during the save of the last epoch leaves: cut weights, no optimizer, no link, no metrics."""
    last = max((path for path in run.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    wall = last.stat().st_mtime
    weights = last / "model.safetensors"
    os.truncate(weights, weights.stat().st_size * 2 // 5)
    for name in ("optimizer_state_dict.pt", "scheduler_state_dict.pt", "training_state.json", "val_metrics.json"):
        (last / name).unlink(missing_ok=True)
    _set_times(last, wall)
    (run / f"epoch{last.name}_end").unlink()
    (run / "checkpoint_best").unlink()
    _link(run / "checkpoint_best", str(int(last.name) - 1), wall)
    _set_time(run, wall)


def _run(
    folder: Path,
    inputs: _Inputs,
    losses: tuple[float, ...],
    total: int,
    steps: int,
    epoch_seconds: float,
    ended: float,
) -> None:
    """A speculators run: an epoch folder for each validation loss, ``total`` bytes on the disk in all."""
    folder.mkdir()
    workspace = folder.parent.parent / "workspace"  # where it is renamed to
    options = {
        "verifier_name_or_path": VERIFIER_NAME,
        "data_path": f"{workspace}/{inputs.data}",
        "val_data_path": f"{workspace}/{inputs.validation}" if inputs.validation else "",
        "save_path": f"{workspace}/{folder.name}",
        "epochs": str(len(losses)),
        "optimizer": "adamw",
        "ttt_steps": "3",
        "log_freq": "1",
    }
    given = {name: value for name, value in options.items() if value}
    words = " ".join(f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in given.items())
    command = f"python -m speculators.train {words}\n"
    (folder / "run.yaml").write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in given.items()))
    (folder / "train_command.txt").write_text(command)
    per_epoch = (total - 2 * blocks(1)) // len(losses)
    best = losses.index(min(losses))
    for epoch, loss in enumerate(losses):
        record = loss == min(losses[: epoch + 1])
        _epoch(folder / str(epoch), epoch, loss if record else None, (epoch + 1) * steps, per_epoch, command)
        finished = ended - (len(losses) - 1 - epoch) * epoch_seconds
        _set_times(folder / str(epoch), finished)
        _link(folder / f"epoch{epoch}_end", str(epoch), finished)
    _link(folder / "checkpoint_best", str(best), ended)
    for name in ("run.yaml", "train_command.txt"):
        _set_time(folder / name, ended - len(losses) * epoch_seconds)
    _set_time(folder, ended)


def _epoch(folder: Path, epoch: int, record: float | None, global_step: int, total: int, command: str) -> None:
    folder.mkdir()
    small = {
        "config.json": json.dumps(_draft_config(), indent=2),
        "training_state.json": json.dumps({"epoch": epoch, "local_step": 0, "global_step": global_step}),
        "train_command.txt": command,
    }
    if record is not None:
        small["val_metrics.json"] = json.dumps({"loss_epoch": record})
    for name, text in small.items():
        (folder / name).write_text(text + "\n")
    schedule = torch_file("scheduler_state_dict", {"last_epoch": global_step}, 0, epoch)
    (folder / "scheduler_state_dict.pt").write_bytes(schedule)
    weights = safetensors(_DRAFT, epoch)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "model.safetensors").chmod(0o600)
    taken = blocks(len(weights)) + blocks(len(schedule)) + len(small) * blocks(1)
    overhead = len(torch_file("optimizer_state_dict", {"state": {}, "param_groups": []}, 0, epoch))
    payload = (total - taken) // blocks(1) * blocks(1) - overhead
    optimizer = torch_file("optimizer_state_dict", {"state": {}, "param_groups": []}, payload, epoch)
    (folder / "optimizer_state_dict.pt").write_bytes(optimizer)


def _data(folder: Path, samples: int, total: int, ended: float) -> None:
    """A prepared data set with the hidden states of each sample, ``total`` bytes on the disk in all."""
    states = folder / "hidden_states"
    states.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(json.dumps({"dataset_name": folder.name, "simulated": True}) + "\n")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": _ARROW}], "_split": None}) + "\n")
    (folder / _ARROW).write_bytes(b"ARROW1\0\0" + b"placeholder of the demo\n")
    available = total // blocks(1) - 3
    for sample in range(samples):
        # The whole blocks are dealt out evenly; a sample has the tokens that fit into its blocks.
        share = (available * (sample + 1) // samples - available * sample // samples) * blocks(1)
        tokens = (share - 256) // (4 * _HIDDEN * 2 + 8)
        content = safetensors(
            {"hidden_states": ("BF16", (tokens, 4, _HIDDEN)), "token_ids": ("I64", (tokens,))}, sample
        )
        (states / f"hs_{sample}.safetensors").write_bytes(content)
        _set_time(states / f"hs_{sample}.safetensors", ended - (samples - sample) * 0.143)
    _set_times(folder, ended)


_ARROW = "data-00000-of-00001.arrow"


def _draft_config() -> dict[str, object]:
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": _VOCAB,
        "transformer_layer_config": {
            "model_type": "llama",
            "hidden_size": _HIDDEN,
            "intermediate_size": _INTERMEDIATE,
            "num_hidden_layers": 1,
        },
        "simulated": True,
    }


def _link(path: Path, target: str, wall: float) -> None:
    path.symlink_to(target)
    _set_time(path, wall)


def _set_times(folder: Path, wall: float) -> None:
    for path in folder.iterdir():
        _set_time(path, wall)
    _set_time(folder, wall)


def _set_time(path: Path, wall: float) -> None:
    os.utime(path, (wall, wall), follow_symlinks=False)
