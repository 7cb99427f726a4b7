"""Ports, endpoints, limits and the clock."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.plan import endpoints, purpose, serving
from pipeline.plan.commands import EXTRACTION, PLAIN, READY_TIMEOUT_SECONDS
from pipeline.plan.needs import gigabytes
from pipeline.plan.stage import Stage
from remote.jobs.facts import Facts
from remote.jobs.preflight.rules import CLOCK, ENDPOINT, LOAD_TIME, OPEN_FILES, PORT
from remote.protocol.jobs import READY
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

SKEW_SECONDS = 30.0
"""Ages, ``--since`` and "until" are the host's; beyond this a person would misread them."""

USUAL_RATE, SLOW_RATE = 400e6, 100e6
"""Bytes of weights loaded in a second: 540 GB in 22 minutes is the first, a busy network file system the second."""

FILES_OF_A_STAGE = 1024
"""Open files of a stage beside its connections: libraries, logs, the data set."""


def checks(stage: Stage, facts: Facts) -> Iterator[Check]:
    """What the machine gives to every stage, whether its run is real or replayed."""
    if "port" in {parameter.name for parameter in stage.parameters}:
        yield from _port(facts)
    if not facts.simulated:
        yield from _endpoint(stage, facts)
        yield from _open_files(stage, facts)
        yield from _load_time(stage, facts)
    yield from _clock(facts)


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


def _endpoint(stage: Stage, facts: Facts) -> Iterator[Check]:
    """A server of ours is known by its job; another one is asked by the stage itself."""
    for name, kind in _endpoints(stage, facts):
        url = str(facts.parameters[name])
        port = endpoints.port_of(url)
        job = next((job for job in facts.living if port and job.parameters.get("port") == port), None)
        if job is None:
            yield Check(ENDPOINT, VERDICT_OK, f"{url} is no job of ours; the stage asks it what it serves")
            continue
        wanted = {"kind": kind, "verifier": facts.parameters.get("verifier")}
        if kind == EXTRACTION:
            wanted = serving.complete({**wanted, "storage": ""}, facts.workspace.path or "")
            wanted.pop("storage")
        wrong = endpoints.disagreement(wanted, serving.known(job.parameters, facts.workspace.path or ""))
        if wrong:
            yield Check(ENDPOINT, VERDICT_BLOCKED, f"{url} is {job.id}: {wrong}", f"leave {name} empty, or serve that")
        elif job.state != READY:
            yield Check(ENDPOINT, VERDICT_BLOCKED, f"{url} is {job.id}, which is {job.state}", "wait until it is ready")
        else:
            yield Check(ENDPOINT, VERDICT_OK, f"{url} is {job.id}, which is what the stage needs")


def _endpoints(stage: Stage, facts: Facts) -> list[tuple[str, str]]:
    known = endpoints.ENDPOINTS.get(stage.name, {})
    if stage.name == "synthesize":
        known = {EXTRACTION if facts.parameters.get("states") else PLAIN: "endpoint"}
    return [(name, kind) for kind, name in known.items() if facts.parameters.get(name)]


def _open_files(stage: Stage, facts: Facts) -> Iterator[Check]:
    limit = facts.host.open_files
    servers = purpose.servers(stage.name, facts.parameters)
    if limit is None or not (servers or facts.parameters.get("concurrency") or stage.name == "train"):
        return
    need = FILES_OF_A_STAGE + 4 * int(facts.parameters.get("concurrency") or 256)
    if limit < need:
        yield Check(
            OPEN_FILES,
            VERDICT_BLOCKED,
            f"a process may open {limit:,} files here (ulimit -Hn), and the stage needs up to {need:,}",
            "raise nofile in /etc/security/limits.conf or in the service, then connect again; or lower concurrency",
        )
    else:
        yield Check(OPEN_FILES, VERDICT_OK, f"a process may open {limit:,} files, {need:,} are needed")


def _load_time(stage: Stage, facts: Facts) -> Iterator[Check]:
    weights = facts.verifier.weight_bytes if facts.verifier else 0
    if not weights or not purpose.servers(stage.name, facts.parameters):
        return
    usual, slow = weights / USUAL_RATE, weights / SLOW_RATE
    limit = READY_TIMEOUT_SECONDS
    words = (
        f"{gigabytes(weights)} of weights load in {usual / 60:,.0f} min at {USUAL_RATE / 1e6:.0f} MB/s and in"
        f" {slow / 60:,.0f} min at {SLOW_RATE / 1e6:.0f} MB/s; vLLM gives its engine {limit / 60:,.0f} min"
        " (VLLM_ENGINE_READY_TIMEOUT_S)"
    )
    remedy = "copy the model to a faster disk first"
    if usual > limit:
        yield Check(LOAD_TIME, VERDICT_BLOCKED, words, remedy)
    elif slow > limit:
        yield Check(LOAD_TIME, VERDICT_WARNING, words, remedy)
    else:
        yield Check(LOAD_TIME, VERDICT_OK, words)


def _clock(facts: Facts) -> Iterator[Check]:
    skew = facts.host.skew
    if skew is not None and abs(skew) > SKEW_SECONDS:
        which = "ahead of" if skew > 0 else "behind"
        yield Check(
            CLOCK,
            VERDICT_WARNING,
            f"this host's clock is {abs(skew):,.0f} s {which} the console's: ages and times of its jobs are shifted",
            "set both by NTP (timedatectl)",
        )
