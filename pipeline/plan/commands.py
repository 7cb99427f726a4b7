"""The command line of each stage, from its parameters: pure, so that a dry run shows exactly what a run would start."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from pipeline.plan.environment import Environment

READY_TIMEOUT_SECONDS = 7200
"""For VLLM_ENGINE_READY_TIMEOUT_S: vLLM's own 600 s kills healthy loads of large models (vllm issues 35547, 32116)."""

_CPU_DEFAULTS = {"dtype": "float32", "enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 8}
"""float32 is several times faster than bfloat16 on a CPU without AVX512; the rest keeps the start-up short."""

_SERVE_OPTIONS = {
    "tensor_parallel": "--tensor-parallel-size",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "served_model_name": "--served-model-name",
}


_SERVE_FLAGS = {
    "enforce_eager": "--enforce-eager",
    "trust_remote_code": "--trust-remote-code",
}

PLAIN, EXTRACTION, DRAFT = SERVE_KINDS = ("plain", "extraction", "draft")
"""What a server is for: answers; answers and hidden states; answers with a draft."""

SPECULATIVE_TOKENS = 3
"""As many as training predicts ahead."""

CPU_CONNECTOR_MODULE = "eagle_console_cpu_connector"


@dataclass(frozen=True)
class Command:
    """A command to run without a shell: ``argv``, the variables it adds to the environment, and its health check.

    :param shown: what a stage of ours runs in turn, for people.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    health_url: Optional[str] = None
    shown: tuple[Command, ...] = ()

    @property
    def line(self) -> str:
        """The command as one would type it in a POSIX shell: what is ``shown`` for it, a line each, else itself."""
        if self.shown:
            return "\n".join(command.line for command in self.shown)
        variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*variables, shlex.join(self.argv)])


QUIET_ENDPOINTS_RELEASE = (0, 16)
"""The first vLLM that can leave single endpoints out of its access log (vllm pull request 30011): our own health checks
would be 17,000 lines a day, and hide what a person looks for."""


def serve(parameters: Mapping[str, Any], environment: Environment) -> Command:
    """``vllm serve`` for the resolved parameters of the stage ``serve``; the same line on GPU and CPU.

    On a CPU build the settings that make a CPU start practical fill what was not given.

    :raises ValueError: when ``extra`` is not a well-formed command line, or the kind lacks what it needs.
    """
    values = dict(parameters)
    if environment.cpu_only:
        values.update({name: value for name, value in _CPU_DEFAULTS.items() if values.get(name) is None})
        values["tensor_parallel"] = None
    argv = [environment.script("vllm"), "serve", values.get("verifier") or "VERIFIER", *_address(values)]
    for name, option in _SERVE_OPTIONS.items():
        if values.get(name) is not None:
            argv += [option, str(values[name])]
    for name, flag in _SERVE_FLAGS.items():
        if values.get(name):
            argv.append(flag)
    argv += _KINDS[values.get("kind") or PLAIN](values, environment)
    if (environment.vllm_release or (0, 0)) >= QUIET_ENDPOINTS_RELEASE:
        argv += ["--disable-access-log-for-endpoints", "/health,/metrics"]
    if values.get("extra"):
        argv += shlex.split(values["extra"])
    return _server(argv, values, environment)


def render(parameters: Mapping[str, Any], environment: Environment) -> Command:
    """``vllm launch render``: the chat template as a server, from config and tokenizer alone.

    :param parameters: ``verifier``, ``port`` and ``trust_remote_code``.
    """
    values = dict(parameters)
    argv = [environment.script("vllm"), "launch", "render", values.get("verifier") or "VERIFIER", *_address(values)]
    if values.get("max_model_len") is not None:
        argv += ["--max-model-len", str(values["max_model_len"])]
    if values.get("trust_remote_code"):
        argv.append(_SERVE_FLAGS["trust_remote_code"])
    return _server(argv, values, environment)


def _extraction(values: Mapping[str, Any], environment: Environment) -> list[str]:
    """Every request leaves a file of hidden states below ``storage``. The log's acceptance figures are no draft's."""
    layers = values.get("layers")
    ids = [int(number) for number in layers.split(",")] if layers else "LAYERS"
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": ids}},
    }
    transfer: dict[str, Any] = {
        "kv_connector": "CPUHiddenStatesConnector" if environment.cpu_only else "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {
            "shared_storage_path": values.get("storage") or "STORAGE",
            "num_writer_threads": 8,
        },
    }
    if environment.cpu_only:
        transfer["kv_connector_module_path"] = CPU_CONNECTOR_MODULE
    return ["--speculative-config", json.dumps(speculative), "--kv-transfer-config", json.dumps(transfer)]


def _draft(values: Mapping[str, Any], environment: Environment) -> list[str]:
    """The method is always named: from a path vLLM guesses, and one with ``eagle-`` in it means EAGLE-1 to it."""
    speculative = {
        "model": values.get("draft") or "DRAFT",
        "method": "eagle3",
        "num_speculative_tokens": values.get("speculative_tokens") or SPECULATIVE_TOKENS,
    }
    return ["--speculative-config", json.dumps(speculative)]


def _address(values: Mapping[str, Any]) -> list[str]:
    return ["--host", "127.0.0.1", "--port", str(values["port"])]


def _server(argv: list[str], values: Mapping[str, Any], environment: Environment) -> Command:
    return Command(tuple(argv), _server_variables(environment), f"http://127.0.0.1:{values['port']}/health")


_KINDS: dict[str, Callable[[Mapping[str, Any], Environment], list[str]]] = {
    PLAIN: lambda values, environment: [],
    EXTRACTION: _extraction,
    DRAFT: _draft,
}


def check(environment: Environment) -> Command:
    """The stage ``check``: the environment's own interpreter imports what the pipeline needs."""
    return Command((environment.python, "-m", "pipeline.stages", "check"))


def _server_variables(environment: Environment) -> dict[str, str]:
    variables = {
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(READY_TIMEOUT_SECONDS),
    }
    if environment.cpu_only:
        variables.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", "VLLM_CPU_KVCACHE_SPACE": "1"})
    return variables
