"""The verifier's server for a stage: one that runs already, or one of its own that comes and goes with the work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.plan import commands
from pipeline.plan.endpoints import ENDPOINTS
from pipeline.plan.events import SERVER_DIED
from pipeline.running import identify
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun
from pipeline.vllm_server import Server, answers, free_port

RENDER = "render"

_SERVER_VALUES = (
    "verifier",
    "tensor_parallel",
    "max_model_len",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "dtype",
    "trust_remote_code",
    "extra",
)


@dataclass(frozen=True)
class Served:
    """A server that can be used.

    :param base: ``http://HOST:PORT``.
    :param model: the name under which it serves the model.
    :param check: raises StageError when it has died.
    """

    base: str
    model: str
    check: Callable[[], None]

    @property
    def endpoint(self) -> str:
        """The OpenAI-compatible API."""
        return f"{self.base}/v1"


@contextlib.contextmanager
def verifier_server(stage: StageRun, kind: str, **values: Any) -> Iterator[Served]:
    """A server of the kind (``plain``, ``extraction``, ``draft`` or ``render``) for the stage's verifier.

    :param values: parameters of the server beyond the stage's own, by the names of the stage ``serve``.
    :raises StageError: when the endpoint that was given does not answer, or the server dies before it is ready.
    """
    given = str(stage.parameters.get(ENDPOINTS[stage.stage.name].get(kind, "")) or "").rstrip("/")
    if given:
        yield _running(stage, given, kind, values)
        return
    own = {name: stage.parameters.get(name) for name in _SERVER_VALUES if name in stage.parameters}
    parameters = {**own, "kind": kind, "port": free_port(), **values}
    build = commands.render if kind == RENDER else commands.serve
    try:
        command = build(parameters, stage.environment)
    except ValueError as error:
        raise StageError(f"{error}.", field="parameter extra", remedy="Give options as on a command line.") from None
    with Server(stage, command, kind) as server:
        yield Served(server.base, server.model(), server.check)


def _running(stage: StageRun, base: str, kind: str, values: Mapping[str, Any]) -> Served:
    def check() -> None:
        if not answers(base):
            raise StageError(
                "The server does not answer its health check.",
                file=f"{base}/health",
                remedy="Start it, or leave endpoint empty: the stage then starts its own.",
                klass=SERVER_DIED,
            )

    check()
    compared = ("layers", "draft", "speculative_tokens", "max_model_len")
    wanted = {name: values[name] for name in compared if values.get(name) is not None}
    if stage.parameters.get("max_tokens"):
        wanted["max_model_len"] = int(stage.parameters["max_tokens"]) + 1  # how long the prompts are, nobody knows yet
    model = identify(stage, base, {**wanted, "kind": kind, "verifier": stage.parameters.get("verifier")})
    stage.message(f"{base} serves {model}, and is used.")
    return Served(base, model, check)
