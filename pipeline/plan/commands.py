"""The command line of each stage, from its parameters: pure, so that a dry run shows exactly what a run would start."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Command:
    """A command to run without a shell: ``argv``, the variables it adds to the environment, and its health check."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    health_url: Optional[str] = None

    @property
    def line(self) -> str:
        """The command as one would type it in a POSIX shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*variables, shlex.join(self.argv)])


def serve(parameters: Mapping[str, Any], environment: Environment) -> Command:
    """``vllm serve`` for the resolved parameters of the stage ``serve``; the same line on GPU and CPU.

    On a CPU build the settings that make a CPU start practical fill what was not given.

    :raises ValueError: when ``extra`` is not a well-formed command line or ``verifier`` is missing.
    """
    values = dict(parameters)
    if environment.cpu_only:
        values.update({name: value for name, value in _CPU_DEFAULTS.items() if values.get(name) is None})
        values["tensor_parallel"] = None
    argv = [environment.script("vllm"), "serve", values.get("verifier") or "VERIFIER"]
    argv += ["--host", "127.0.0.1", "--port", str(values["port"])]
    for name, option in _SERVE_OPTIONS.items():
        if values.get(name) is not None:
            argv += [option, str(values[name])]
    if values.get("enforce_eager"):
        argv.append("--enforce-eager")
    if values.get("extra"):
        argv += shlex.split(values["extra"])
    return Command(tuple(argv), _server_variables(environment), f"http://127.0.0.1:{values['port']}/health")


def check(environment: Environment) -> Command:
    """The stage ``check``: the environment's own interpreter imports what the pipeline needs."""
    return Command((environment.python, "-m", "pipeline.stages", "check"))


def command(stage: str, parameters: Mapping[str, Any], environment: Environment) -> Command:
    """The command of the stage of that name.

    :raises ValueError: as the stage's own function does.
    """
    builders: dict[str, Callable[[], Command]] = {
        "serve": lambda: serve(parameters, environment),
        "check": lambda: check(environment),
    }
    return builders[stage]()


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
