"""How much memory a stage will hold, before it starts: on each GPU, in the host's memory, in ``/dev/shm``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan import training
from pipeline.plan.budget import extraction
from pipeline.plan.needs import ASSUMED_TOKENS, batched_tokens, state_bytes, training_shape
from pipeline.plan.state import RunState
from pipeline.plan.training import Data, Machine, Settings
from pipeline.plan.verifier_config import VerifierConfig

GPU_SHARE = 0.92
"""Of a GPU's memory that vLLM takes unless told otherwise (0.32; 0.9 in 0.19)."""

CONTEXT_BYTES = 2 * 1024**3
"""What CUDA, NCCL, compiled kernels and captured graphs hold on a GPU beside weights, cache and activations."""

WORKER_BYTES = 6 * 1024**3
"""Host memory of one vLLM worker process: Python, CUDA, pinned buffers."""

CPU_SERVER_BYTES = 2 * 1024**3
CPU_CACHE_BYTES = 1024**3
"""Of a server on the CPU beside its weights: the processes, and the KV cache that ``VLLM_CPU_KVCACHE_SPACE`` sets."""

TRAINER_BYTES = 4 * 1024**3
"""Host memory of one trainer: Python, CUDA, the pinned batches. A checkpoint passes through it besides."""

SHM_SERVER_BYTES = 256 * 1024**2
"""Of ``/dev/shm`` that the queues between vLLM's processes take with more than one GPU a model."""

_WIDE = 12
"""Values of hidden size that one token's forward pass keeps at once in a layer, its MLP included."""

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class ServerNeed:
    """Bytes that a server needs on each of its GPUs, by what they are for."""

    weights: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.activations + CONTEXT_BYTES

    @property
    def words(self) -> str:
        return (
            f"weights {_gb(self.weights)}, KV cache of one longest sequence {_gb(self.cache)},"
            f" activations {_gb(self.activations)}, CUDA and graphs {_gb(CONTEXT_BYTES)}"
        )


def server(
    parameters: Mapping[str, Any], config: VerifierConfig, weight_bytes: int, draft_bytes: int = 0
) -> ServerNeed:
    """What vLLM needs on each GPU to start and to serve one sequence of the greatest length.

    :param weight_bytes: of the verifier's files. :param draft_bytes: of the draft's, which every GPU shares in too.
    """
    gpus = int(parameters.get("tensor_parallel") or 1)
    length = int(parameters.get("max_model_len") or config.max_positions or 8192)
    cache = (config.cache_values or 2 * config.hidden_size) * 2 * config.layers * length
    step = batched_tokens(parameters, cpu_only=False)
    activations = step * config.hidden_size * 2 * _WIDE + step * (config.intermediate_size or 0) * 2 // gpus
    logits = int(parameters.get("max_num_seqs") or parameters.get("concurrency") or 256) * config.vocab_size * 4
    return ServerNeed(
        (weight_bytes + draft_bytes) // gpus, cache if config.latent else cache // gpus, activations + logits
    )


def cpu_server(parameters: Mapping[str, Any], config: VerifierConfig, weight_bytes: int) -> int:
    """Host memory of a server on the CPU, whose weights are float32 unless told otherwise."""
    stored = _DTYPE_BYTES.get(config.dtype or "", 2)
    computed = _DTYPE_BYTES.get(str(parameters.get("dtype") or "float32"), stored)
    return weight_bytes * computed // stored + CPU_CACHE_BYTES + CPU_SERVER_BYTES


def gpu_server_host(parameters: Mapping[str, Any]) -> int:
    """Host memory of a server on GPUs, without the page cache that its files pass through."""
    return int(parameters.get("tensor_parallel") or 1) * WORKER_BYTES


def states_in_flight(
    parameters: Mapping[str, Any], config: VerifierConfig, memory: Optional[int], cpu_only: bool
) -> int:
    """Hidden states that wait in the host's memory for the disk, within the budget."""
    length = int(parameters.get("max_model_len") or 2048)
    token = state_bytes(config, parameters.get("dtype"), cpu_only)
    return extraction(token, length, int(parameters.get("concurrency") or 32), memory, cpu_only).host_bytes


@dataclass(frozen=True)
class TrainingNeed:
    """What training needs.

    :param processes: trainers, one a GPU.
    :param gpu: bytes on each of their GPUs.
    :param shared: bytes of ``/dev/shm`` for the batches that wait, of all processes.
    :param host: bytes of the host's memory, the batches included.
    """

    processes: int
    gpu: int
    shared: int
    host: int
    words: str


def train(parameters: Mapping[str, Any], config: VerifierConfig, run: RunState, machine: Machine) -> TrainingNeed:
    """What the trainer needs at the settings that the stage would choose.

    :raises SettingsError: when the parameters do not go together.
    """
    rows = run.rows or run.answers or run.prompts or 1000
    tokens = run.tokens or run.answer_tokens or rows * ASSUMED_TOKENS
    shape = training_shape(config, parameters["draft_vocab_size"], run)
    settings: Settings = training.choose(parameters, machine, Data(rows, tokens, 4 * tokens // rows), shape)
    values = settings.values
    processes, length = int(values["processes"]), int(values["total_seq_len"])
    steps = training.activation_bytes(shape, int(values["ttt_steps"])) * length
    static = training.static_bytes(shape)
    batch = length * shape.states * shape.hidden * (4 if values["states_dtype"] == "float32" else 2)
    shared = processes * max(1, int(values["loader_workers"])) * int(values["prefetch"]) * batch
    checkpoint = training.checkpoint_bytes(values, shape)
    host = processes * TRAINER_BYTES + checkpoint + shared + (0 if machine.gpus else static + steps)
    words = f"draft and optimizer {_gb(static)}, a step of {length:,} tokens {_gb(steps)}"
    return TrainingNeed(processes, static + steps, shared, host, words)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
