"""May the stage write, is there room, and does nobody else write there?"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.plan import needs, purpose
from pipeline.plan.catalog import stage_named
from pipeline.plan.needs import RESERVE_BYTES, gigabytes
from pipeline.plan.stage import Stage
from remote.jobs.facts import Facts
from remote.jobs.preflight.rules import CACHE, DISK, READ_ONLY, WORKSPACE, WRITER
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

LOW_DISK_BYTES = 1024**3

CACHE_BYTES = 2_000_000_000
"""What torch.compile, Triton and vLLM keep below the user's cache folder for one model."""

FREE = "prune stale artifacts, or set workspace to a larger file system"


def checks(stage: Stage, facts: Facts) -> Iterator[Check]:
    """Read-only, the workspace, its other writers, its room, and the room for compiled kernels."""
    if facts.readonly_reason:
        yield Check(READ_ONLY, VERDICT_BLOCKED, f"the connection is read-only: {facts.readonly_reason}")
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
        yield from _writer(stage, facts)
        yield from _disk(stage, facts)
    yield from _cache(stage, facts)


def _writer(stage: Stage, facts: Facts) -> Iterator[Check]:
    ours = _written(stage.name, facts.parameters.get("run"))
    for job in facts.living:
        shared = sorted(ours & _written(job.stage, job.parameters.get("run")))
        if shared and not job.simulated:
            yield Check(
                WRITER,
                VERDICT_BLOCKED,
                f"{job.id} ({job.state}) writes {', '.join(shared)}",
                "wait until it has ended, stop it, or give another run=NAME",
            )


def _written(stage: str, run: object) -> set[str]:
    """The folders of the workspace that a stage writes, by their first name."""
    try:
        outputs = stage_named(stage).outputs
    except KeyError:
        return set()
    words = [output.split(": ")[-1] for output in outputs]
    return {word.partition("/")[0].replace("NAME", str(run)) for word in words if run or "NAME" not in word}


def _disk(stage: Stage, facts: Facts) -> Iterator[Check]:
    free = facts.workspace.free
    if free is None:
        return
    config = facts.verifier.config if facts.verifier else None
    if facts.simulated:
        need = needs.NOTHING
    else:
        need = needs.disk(stage.name, facts.parameters, config, facts.run, facts.cpu_only)
    others = needs.growth(facts.growth)
    left = free - others.expected - RESERVE_BYTES
    there = f"{gigabytes(free)} are free below {facts.workspace.path}"
    if others.expected:
        there += f", of which running jobs will take {gigabytes(others.expected)} ({others.words})"
    words = f"it will write about {gigabytes(need.expected)} ({need.words}); {there}"
    if need.expected and need.expected > left:
        missing = gigabytes(need.expected - left)
        yield Check(DISK, VERDICT_BLOCKED, f"{words}: {missing} are missing", f"free {missing}: {FREE}")
    elif need.largest and need.largest > left:
        worst = gigabytes(need.largest)
        yield Check(DISK, VERDICT_WARNING, f"{words}; at worst it is {worst}", "lower max_tokens or samples")
    elif free < LOW_DISK_BYTES:
        yield Check(DISK, VERDICT_WARNING, f"only {free / 1e6:,.0f} MB are free below {facts.workspace.path}", FREE)
    elif need.expected:
        yield Check(DISK, VERDICT_OK, words)


def _cache(stage: Stage, facts: Facts) -> Iterator[Check]:
    compiles = purpose.servers(stage.name, facts.parameters) or "train" in dict(
        purpose.parts(stage.name, facts.parameters)
    )
    free = facts.host.cache_free
    if compiles and not facts.cpu_only and not facts.simulated and free is not None and free < CACHE_BYTES:
        yield Check(
            CACHE,
            VERDICT_WARNING,
            f"compiled kernels go to {facts.host.cache}, about {gigabytes(CACHE_BYTES)}; {gigabytes(free)} are free",
            "free space there, or set XDG_CACHE_HOME before the agent starts",
        )
