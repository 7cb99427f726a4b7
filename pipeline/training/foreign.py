"""A save path that ``speculators train`` has filled by itself: whether this stage can continue what was begun there.

speculators 0.9.0 leaves ``run.yaml`` with every setting that is not a default, and ``train_command.txt``, a comment of
which names the number of processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETTINGS, COMMAND = "run.yaml", "train_command.txt"

_FREE = {
    "save_path", "epochs", "max_steps", "checkpoint_freq", "no_resume_from_checkpoint", "dry_run",
    "num_workers", "prefetch_factor", "loss_implementation", "draft_attn_impl", "hidden_states_dtype",
    "gradient_checkpointing", "deterministic_cuda", "log_freq", "logger", "log_dir", "run_name",
    "on_missing", "on_generate", "vllm_endpoint", "request_timeout", "max_retries", "generation_validation_retries",
    "max_consecutive_generation_failures", "mask_token_id", "trust_remote_code",
}  # fmt: skip
"""What may change in the middle of a training: it says how fast, how long and how loud."""

_PATHS = {"data_path", "verifier_name_or_path"}
_WORLD_SIZE = re.compile(r"^# World size: (\d+)$", re.MULTILINE)


def differences(save_path: Path, options: Sequence[str], processes: int) -> list[str]:
    """The settings of the run that filled the save path which are not those of ``options``, a few words each.

    :param options: of ``speculators train``, for the run that is to continue. :param processes: of that run.
    :raises ValueError: when the folder does not say what filled it.
    """
    theirs, ours = _flat(["--config", str(save_path / SETTINGS)]), _flat(options)
    found = [
        f"{name} was {theirs.get(name)} and is {ours.get(name)}"
        for name in sorted({*theirs, *ours} - _FREE)
        if _same_form(name, theirs.get(name)) != _same_form(name, ours.get(name))
    ]
    before = _processes(save_path)
    return found if before == processes else [*found, f"processes was {before} and is {processes}"]


def _flat(options: Sequence[str]) -> dict[str, Any]:
    from speculators.train.config import TrainConfig

    try:
        values: dict[str, Any] = TrainConfig.resolve(list(options)).flatten()
    except SystemExit:
        raise ValueError(f"speculators cannot read {options[1]}") from None
    return values


def _same_form(name: str, value: Any) -> Any:
    return os.path.realpath(value) if name in _PATHS and value else value


def _processes(save_path: Path) -> int:
    try:
        found = _WORLD_SIZE.search((save_path / COMMAND).read_text(errors="replace"))
    except OSError:
        found = None
    return int(found[1]) if found else 1
