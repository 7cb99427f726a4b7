"""What is known of a draft's folder and of its verifier before anything is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from pipeline.plan.safetensors import TensorInfo

FLAT, SPECULATORS = "flat", "speculators"

VLLM, SGLANG = "vllm", "sglang"
CONVENTIONS = (VLLM, SGLANG)
"""How layer ids count: N is the state that enters layer N (vLLM, speculators), or the one that leaves layer N (SGLang,
SpecForge, TorchSpec, ModelOpt), which vLLM calls N+1."""


@dataclass(frozen=True)
class Sample:
    """What was read of a tensor's data.

    :param values: how many values were looked at.
    :param whole: that was all of them.
    :param bad: how many are no finite numbers.
    :param zero: all are 0.
    """

    values: int
    whole: bool
    bad: int = 0
    zero: bool = False


@dataclass(frozen=True)
class FileProblem:
    """A file that cannot be used; ``rule`` is F1, F2 or F3."""

    rule: str
    evidence: str


@dataclass(frozen=True)
class Draft:
    """A draft's folder.

    :param path: the folder's absolute path on its host.
    :param config: the object in ``config.json``; empty where it cannot be read.
    :param tensors: by name, over all files.
    :param d2t: the values of ``d2t``; None where it is missing or not of whole numbers.
    :param t2d: the tokens that ``t2d`` marks; None likewise.
    :param samples: what was read of the data of each tensor that was looked into.
    :param verifier_found: whether the folder that a speculators config names as verifier is there; None where it names
        none, or no absolute path.
    """

    path: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    d2t: Optional[tuple[int, ...]] = None
    t2d: Optional[tuple[int, ...]] = None
    samples: Mapping[str, Sample] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()
    verifier_found: Optional[bool] = None

    @property
    def format(self) -> str:
        return SPECULATORS if "speculators_config" in self.config else FLAT


@dataclass(frozen=True)
class Verifier:
    """The verifier: its folder and its ``config.json``."""

    path: str
    config: Mapping[str, Any]

    @property
    def text(self) -> Mapping[str, Any]:
        """The config of its language model."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    def number(self, name: str) -> Optional[int]:
        """A positive whole number of the language model's config."""
        return positive(self.text.get(name))


def positive(value: Any) -> Optional[int]:
    """The value, if it is a positive whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def numbers(value: Any) -> tuple[int, ...]:
    """The whole numbers in a list; empty where it is anything else."""
    if not isinstance(value, (list, tuple)) or not all(type(item) is int for item in value):
        return ()
    return tuple(value)
