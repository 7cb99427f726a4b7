"""The settings of a training run and why each was chosen: a pure function of machine, data and shape.

A parameter that the user gave is taken as it is. The figures behind the choices were measured on an H200 at hidden
7168, vocabulary 163,840, draft vocabulary 32,000 (docs/training.md names them).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

PACKED_TOKENS = 8192
"""Tokens of a packed step: 4.1 times the tokens/s of steps of one 512-token sample, and little more beyond it."""

EPOCH_STEPS = 50
"""An epoch is not packed into fewer steps than this: the optimizer learns by steps, not by tokens."""

EPOCH_STEPS_PARALLEL = 200
"""More than one process only while each epoch still has this many steps; every process makes them rarer."""

MUON_HIDDEN = 2048
"""Up to this hidden size a step with muon costs next to nothing more: 44.6 ms beside 38.7 (measured at this size)."""

MUON_STEPS = 450
"""From here on muon's validation predicts more than adamw's: 3.975 and 3.952 in the end (a made-up language)."""

MAX_WORKERS = 4
"""Loader processes of each trainer. Each imports torch (seconds of start-up); four feed the fastest steps measured."""

REFUSED_OPTIONS = {
    "--save-best": "it deletes everything else in the save path",
    "--save-path": "the stage's own run decides it",
    "--data-path": "the stage's own run decides it",
    "--no-resume-from-checkpoint": "it overwrites finished epochs; give another run=NAME",
    "--dry-run": "it trains nothing",
    "--config": "the stage's own parameters decide",
}
"""Options of the trainer that ``trainer_options`` may not hold, and why."""


class SettingsError(ValueError):
    """Parameters that do not go together. The message names the parameter and a remedy."""


@dataclass(frozen=True)
class Machine:
    """What training can use. ``gpus`` 0 means CPU; memory sizes in bytes, None where they are not known."""

    gpus: int
    cores: int
    gpu_memory: Optional[int] = None
    shared_memory: Optional[int] = None


@dataclass(frozen=True)
class Data:
    """The prepared data set: samples, their tokens together, and the longest sample in tokens."""

    samples: int
    tokens: int
    longest: int


@dataclass(frozen=True)
class Shape:
    """The sizes that decide memory. ``states`` is the number of hidden states stored for each token."""

    hidden: int
    vocabulary: int
    draft_vocabulary: int
    states: int = 4


@dataclass(frozen=True)
class Choice:
    """One setting: its value, why, and whether the user decided it."""

    name: str
    value: Any
    why: str
    given: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.name}={self.value}: {'as given' if self.given else self.why}"


@dataclass(frozen=True)
class Settings:
    """All settings of a run.

    :param steps_per_epoch: estimated from the token count; the trainer counts exactly.
    """

    values: dict[str, Any]
    choices: tuple[Choice, ...]
    steps_per_epoch: int

    def replaced(self, name: str, value: Any, why: str) -> Settings:
        """The same settings with another value for one of them."""
        choices = tuple(Choice(name, value, why) if choice.name == name else choice for choice in self.choices)
        return Settings({**self.values, name: value}, choices, self.steps_per_epoch)


def choose(parameters: Mapping[str, Any], machine: Machine, data: Data, shape: Shape) -> Settings:
    """The settings of a run.

    :param parameters: resolved parameters of the stage ``train``; None means that the choice is ours.
    :raises SettingsError: when parameters do not go together.
    """
    chosen: dict[str, Choice] = {}

    def settle(name: str, value: Any, why: str) -> Any:
        given = parameters.get(name)
        chosen[name] = Choice(name, value if given is None else given, why, given is not None)
        return chosen[name].value

    on_cpu = machine.gpus == 0
    trained = int(data.tokens * float(parameters["training_share"]))
    length = settle("total_seq_len", *_length(data, trained, machine, shape))
    processes = settle("processes", *_processes(trained, length, machine))
    steps = max(1, round(trained / (0.95 * length * processes)))
    optimizer = settle("optimizer", *_optimizer(on_cpu, shape, steps * int(parameters["epochs"])))
    settle("lr", 1e-3, "the trainer's default")
    workers = settle("loader_workers", *_workers(machine, processes))
    settle("prefetch", *_prefetch(workers * processes, length, machine, shape))
    settle("loss_implementation", *_loss(machine))
    settle("log_every", *_log_every(on_cpu, optimizer, steps))
    settle(
        "states_dtype", *(("float32", "faster than bfloat16 on most CPUs") if on_cpu else ("bfloat16", "of the states"))
    )
    settle("attention", *_attention(on_cpu))
    settle("fused_optimizer", not on_cpu, "one kernel for AdamW's update" if not on_cpu else "for GPUs only")
    _check(parameters)
    values = {**parameters, **{name: choice.value for name, choice in chosen.items()}}
    return Settings(values, tuple(chosen.values()), steps)


def trainer_options(values: Mapping[str, Any], prepared: str, output: str) -> list[str]:
    """The options of ``speculators train`` for the settings.

    :param prepared: the data set's folder. :param output: the save path.
    :raises SettingsError: when ``trainer_options`` is no command line or holds an option that the stage refuses.
    """
    options = ["--verifier-name-or-path", str(values.get("verifier") or "VERIFIER")]
    options += ["--data-path", prepared, "--save-path", output]
    if values.get("draft_vocab_size") is not None:
        options += ["--draft-vocab-size", str(values["draft_vocab_size"])]
    if values.get("layer_ids"):
        options += ["--target-layer-ids", *str(values["layer_ids"]).replace(",", " ").split()]
    pairs = {
        "--epochs": "epochs",
        "--total-seq-len": "total_seq_len",
        "--train-data-ratio": "training_share",
        "--num-workers": "loader_workers",
        "--prefetch-factor": "prefetch",
        "--optimizer": "optimizer",
        "--lr": "lr",
        "--ttt-steps": "ttt_steps",
        "--loss-implementation": "loss_implementation",
        "--draft-attn-impl": "attention",
        "--hidden-states-dtype": "states_dtype",
        "--checkpoint-freq": "checkpoint_every",
        "--log-freq": "log_every",
        "--seed": "seed",
    }
    for option, name in pairs.items():
        options += [option, f"{values[name]:g}" if isinstance(values[name], float) else str(values[name])]
    # EAGLE-3 has no mask token; without a number the trainer looks for one with the verifier's tokenizer.
    options += ["--mask-token-id", "0"]
    return [*options, "--on-missing", "raise", *extra_options(values.get("trainer_options"))]


def extra_options(extra: Optional[str]) -> list[str]:
    """The user's further options for the trainer.

    :raises SettingsError: when they are no command line, or hold an option that the stage refuses.
    """
    try:
        words = shlex.split(extra or "")
    except ValueError as error:
        raise SettingsError(f"trainer_options={extra}: {error}") from None
    for word in words:
        why = REFUSED_OPTIONS.get(word.split("=")[0])
        if why:
            raise SettingsError(f"trainer_options: {word} is refused: {why}")
    return words


def argv(python: str, values: Mapping[str, Any], wrapper: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """The command of the trainer: our wrapper around speculators' own, alone or a process for each GPU.

    :param wrapper: options of the wrapper. :param options: those of ``trainer_options``.
    """
    module = ("-m", "pipeline.training.trainer", *wrapper, "--", *options)
    if values["processes"] == 1:
        return (python, *module)
    spread = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(values["processes"]))
    return (python, *spread, *module)


def activation_bytes(shape: Shape, ttt_steps: int = 3) -> int:
    """Bytes of GPU memory that one token of a step needs: fitted to 46 GB at 8192 tokens and 32 GB at 512."""
    return ttt_steps * (12 * shape.draft_vocabulary + 36 * shape.hidden)


def static_bytes(shape: Shape) -> int:
    """Bytes of GPU memory that training needs whatever the step's length: float32 weights, gradients and two moments,
    the frozen weights, and what the allocator holds beside them (32 GB where 21 GB are in use)."""
    frozen = shape.hidden * (shape.vocabulary + 2 * shape.draft_vocabulary)
    return int(1.45 * (16 * _trained(shape) + 4 * frozen))


def checkpoint_bytes(values: Mapping[str, Any], shape: Shape) -> int:
    """Bytes of one checkpoint: weights and the optimizer's state in bfloat16; 8.6 GB measured for Kimi-K2.5's size."""
    moments = 2 if values["optimizer"] == "adamw" else 1
    frozen = shape.hidden * (shape.draft_vocabulary + (shape.vocabulary if values.get("keep_embedding") else 0))
    return 2 * (_trained(shape) * (1 + moments) + frozen)


def checkpoints(values: Mapping[str, Any]) -> int:
    """How many checkpoints a whole run leaves: epoch 0 always has one."""
    every, epochs = float(values["checkpoint_every"]), int(values["epochs"])
    return epochs if every <= 1 else epochs // int(every) + 1


def _trained(shape: Shape) -> int:
    """Weights that are trained: the states' projection, attention and MLP of one layer."""
    return shape.hidden * shape.hidden * (shape.states - 1 + 16)


def _length(data: Data, trained: int, machine: Machine, shape: Shape) -> tuple[int, str]:
    longest = _bucket(data.longest)
    fits = None
    if machine.gpu_memory:
        fits = max(0, int(0.9 * machine.gpu_memory) - static_bytes(shape)) // activation_bytes(shape)
    length = max(longest, PACKED_TOKENS)
    while length > longest and (trained / length < EPOCH_STEPS or (fits is not None and length > fits)):
        length //= 2
    if length == longest:
        return length, f"the longest sample has {data.longest:,} tokens; more would leave too few steps or memory"
    return length, f"samples packed; an epoch still has about {trained // length:,} steps"


def _bucket(longest: int) -> int:
    length = 64
    while length < longest:
        length *= 2
    return length


def _processes(trained: int, length: int, machine: Machine) -> tuple[int, str]:
    processes = 1
    while processes * 2 <= machine.gpus and trained / (length * processes * 2) >= EPOCH_STEPS_PARALLEL:
        processes *= 2
    if machine.gpus <= 1:
        return 1, "no GPU" if machine.gpus == 0 else "one GPU"
    steps = trained // (length * processes)
    return processes, f"of {machine.gpus} GPUs; an epoch has about {steps:,} steps, more processes make fewer of them"


def _optimizer(on_cpu: bool, shape: Shape, steps: int) -> tuple[str, str]:
    if on_cpu:
        return "adamw", "muon, the trainer's default, takes 50 times as long for a step on a CPU"
    if shape.hidden > MUON_HIDDEN:
        return (
            "adamw",
            "a step of 512 tokens takes 78 ms, 340 with muon; one of 8192 tokens 314 ms, and 587",
        )
    if steps < MUON_STEPS:
        return "adamw", f"it predicts more than muon, the trainer's default, for the first {MUON_STEPS} steps"
    return "muon", "the trainer's default: at this width a step takes 1.15 times adamw's, and it ends at 3.97, not 3.95"


def _workers(machine: Machine, processes: int) -> tuple[int, str]:
    workers = max(1, min(MAX_WORKERS, machine.cores // (2 * processes)))
    return workers, f"loader processes for each trainer on {machine.cores} cores"


def _prefetch(workers: int, length: int, machine: Machine, shape: Shape) -> tuple[int, str]:
    batch = length * shape.states * shape.hidden * 2
    limit = (machine.shared_memory or 16 * 1024**3) // 2
    prefetch = next((count for count in (4, 2) if workers * count * batch <= limit), 1)
    return prefetch, f"{workers * prefetch} batches of {batch / 1e6:,.0f} MB wait in shared memory"


def _loss(machine: Machine) -> tuple[str, str]:
    if machine.gpus == 0:
        return "eager", "the fused loss is a GPU kernel"
    return "fused", "faster, and no logits of the whole step in memory; eager where it cannot compile"


def _log_every(on_cpu: bool, optimizer: str, steps: int) -> tuple[int, str]:
    if on_cpu or optimizer == "muon":
        return 1, "a record of every step costs nothing here"
    return max(1, min(10, steps // 5)), "a record makes the GPU wait: 8 % if every step writes one"


def _attention(on_cpu: bool) -> tuple[str, str]:
    if on_cpu:
        return "sdpa", "flex attention has no CPU path for training"
    return "simple_flex_attention", "the trainer's default"


def _check(parameters: Mapping[str, Any]) -> None:
    every, epochs = float(parameters["checkpoint_every"]), int(parameters["epochs"])
    if every > 1 and (not every.is_integer() or epochs % int(every)):
        raise SettingsError(
            f"checkpoint_every={every:g}: the last of {epochs} epochs would not be saved; give a divisor of {epochs}"
        )
    extra_options(parameters.get("trainer_options"))
