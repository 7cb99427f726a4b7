"""What preflight checks need to know about this host, gathered in one place so that the checks stay pure."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan.environment import Environment
from remote.policy import Policy
from remote.protocol.jobs import Job

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "tokenizer_config.json",
    "vocab.json",
    "tekken.json",
)


@dataclass(frozen=True)
class VerifierFacts:
    """What a model folder holds. ``problem`` is why it could not be looked into, empty when it could."""

    path: str
    exists: bool = False
    has_config: bool = False
    has_weights: bool = False
    has_tokenizer: bool = False
    problem: str = ""


@dataclass(frozen=True)
class WorkspaceFacts:
    """The workspace as a place to write into; ``free`` in bytes for this user, None when unknown."""

    path: Optional[str]
    exists: bool = False
    writable: bool = False
    free: Optional[int] = None


@dataclass(frozen=True)
class Facts:
    """Everything that the checks of one launch look at.

    :param python: what was found at the profile's interpreter, None where the profile names none.
    :param verifier: None where neither profile nor request name one.
    :param port: of the server to start, None for a stage without one; ``port_problem`` is why it cannot be bound.
    :param port_job: a living job of ours with the same port.
    :param simulated: a recorded run is replayed instead, since the ML environment is not there.
    """

    workspace: WorkspaceFacts
    python: Optional[Environment] = None
    verifier: Optional[VerifierFacts] = None
    port: Optional[int] = None
    port_problem: str = ""
    port_job: Optional[Job] = None
    readonly_reason: str = ""
    simulated: bool = False


def gather(
    policy: Policy,
    environment: Optional[Environment],
    parameters: dict[str, Any],
    living: tuple[Job, ...],
    simulated: bool,
) -> Facts:
    """Looks at the host. Never raises; starts nothing and changes nothing.

    :param parameters: the stage's resolved parameters.
    :param living: the jobs that have not ended.
    """
    port = parameters.get("port")
    verifier = parameters.get("verifier")
    return Facts(
        workspace=_workspace(policy.workspace),
        python=environment,
        verifier=_verifier(verifier) if verifier else None,
        port=port,
        port_problem=_port_problem(port) if port else "",
        port_job=next((job for job in living if port and job.parameters.get("port") == port), None),
        readonly_reason=policy.readonly_reason if policy.readonly else "",
        simulated=simulated,
    )


def _workspace(path: Optional[str]) -> WorkspaceFacts:
    if path is None or not os.path.isdir(path):
        return WorkspaceFacts(path)
    free = None
    with contextlib.suppress(OSError):
        status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize
    return WorkspaceFacts(path, True, os.access(path, os.W_OK | os.X_OK), free)


def _verifier(path: str) -> VerifierFacts:
    if not os.path.isdir(path):
        return VerifierFacts(path)
    try:
        names = os.listdir(path)
    except OSError as error:
        return VerifierFacts(path, exists=True, problem=error.strerror or str(error))
    return VerifierFacts(
        path,
        exists=True,
        has_config="config.json" in names,
        has_weights=any(Path(name).suffix in WEIGHT_SUFFIXES for name in names),
        has_tokenizer=any(name in TOKENIZER_FILES for name in names),
    )


def _port_problem(port: int) -> str:
    """Why the port of the loopback interface cannot be bound, empty when it can.

    SO_REUSEADDR as servers set it: connections of an earlier server in TIME_WAIT are no obstacle.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return ""
