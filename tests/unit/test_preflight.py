"""Preflight checks over facts: what blocks, what only warns, and that every obstacle names a remedy."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.plan.catalog import CHECK, SERVE
from pipeline.plan.environment import Environment
from remote.jobs import preflight
from remote.jobs.facts import Facts, VerifierFacts, WorkspaceFacts
from remote.protocol.jobs import READY, Job
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

PYTHON = Environment("/ml/bin/python", True, "/ml/lib", {"vllm": "0.32.0"})
VERIFIER = VerifierFacts("/models/x", exists=True, has_config=True, has_weights=True, has_tokenizer=True)
GOOD = Facts(WorkspaceFacts("/data", True, True, 10**12), PYTHON, VERIFIER, 8000)
JOB = Job("serve-20260101-000000-aaaa", "serve", "service", READY, 1.0, "here", {"port": 8000})


def test_all_well() -> None:
    checks = preflight.checks(SERVE, GOOD)
    assert [check.rule for check in checks] == ["workspace", "python", "vllm", "verifier", "port"]
    assert preflight.verdict(checks) == VERDICT_OK
    assert [check.rule for check in preflight.checks(CHECK, GOOD)] == ["workspace", "python"]


@pytest.mark.parametrize(
    ("change", "rule", "verdict", "words"),
    [
        ({"readonly_reason": "agent.toml says so"}, "read_only", VERDICT_BLOCKED, "agent.toml says so"),
        ({"workspace": WorkspaceFacts(None)}, "workspace", VERDICT_BLOCKED, "no workspace is set"),
        ({"workspace": WorkspaceFacts("/data")}, "workspace", VERDICT_BLOCKED, "no folder"),
        ({"workspace": WorkspaceFacts("/data", True)}, "workspace", VERDICT_BLOCKED, "cannot be written"),
        ({"workspace": WorkspaceFacts("/data", True, True, 10**8)}, "disk", VERDICT_WARNING, "100 MB"),
        ({"python": None}, "python", VERDICT_BLOCKED, "no ML environment is set"),
        ({"python": Environment("/x", False)}, "python", VERDICT_BLOCKED, "/x"),
        ({"python": Environment("/x", True)}, "vllm", VERDICT_WARNING, "cannot be told"),
        ({"python": Environment("/x", True, "/l", {})}, "vllm", VERDICT_BLOCKED, "not installed"),
        ({"verifier": None}, "verifier", VERDICT_BLOCKED, "no verifier is set"),
        ({"verifier": VerifierFacts("/m")}, "verifier", VERDICT_BLOCKED, "/m is no folder"),
        ({"verifier": dataclasses.replace(VERIFIER, problem="denied")}, "verifier", VERDICT_BLOCKED, "denied"),
        ({"verifier": dataclasses.replace(VERIFIER, has_config=False)}, "verifier", VERDICT_BLOCKED, "config.json"),
        ({"verifier": dataclasses.replace(VERIFIER, has_weights=False)}, "verifier", VERDICT_BLOCKED, "weights"),
        ({"verifier": dataclasses.replace(VERIFIER, has_tokenizer=False)}, "verifier", VERDICT_BLOCKED, "tokenizer"),
        ({"port_problem": "Address already in use"}, "port", VERDICT_BLOCKED, "already in use"),
        ({"port_job": JOB}, "port", VERDICT_BLOCKED, JOB.id),
    ],
)
def test_what_stands_in_the_way(change: dict[str, object], rule: str, verdict: str, words: str) -> None:
    checks = preflight.checks(SERVE, dataclasses.replace(GOOD, **change))
    (found,) = [check for check in checks if check.verdict != VERDICT_OK]
    assert (found.rule, found.verdict) == (rule, verdict) and words in found.reason
    assert found.remedy or rule == "read_only"
    assert preflight.verdict(checks) == verdict


def test_a_replay_needs_neither_environment_nor_verifier() -> None:
    checks = preflight.checks(SERVE, dataclasses.replace(GOOD, python=None, verifier=None, simulated=True))
    assert preflight.verdict(checks) == VERDICT_OK and any("replayed" in check.reason for check in checks)


def test_what_can_be_forced() -> None:
    checks = [Check(rule, VERDICT_BLOCKED, "x") for rule in ("read_only", "workspace", "verifier", "port")]
    checks += [Check("vllm", VERDICT_WARNING, "x"), Check("python", VERDICT_OK, "x")]

    def stands(*forced: str) -> list[str]:
        return [check.rule for check in preflight.blocking(checks, forced)]

    assert stands() == ["read_only", "workspace", "verifier", "port"]
    assert stands("port", "verifier", "workspace", "read_only") == ["read_only", "workspace"]
