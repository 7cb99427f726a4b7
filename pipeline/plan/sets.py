"""The ML environments that the stage ``setup`` can make, and which of them a host gets. Data, and what follows from it.

Each set is a list of pins beside this package (``requirements-NAME.txt``), as pip resolved it, so that the same set is
the same environment everywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from pipeline.plan.commands import Command
from pipeline.plan.fingerprint import of_values
from pipeline.plan.versions import CUDA_DRIVERS, driver_allows

AUTO = "auto"

MODULES = ("torch", "transformers", "datasets", "vllm", "speculators")
"""What must be importable for the environment to be of use."""

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)


class SetError(ValueError):
    """This host cannot have the set. ``remedy`` is what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class PinnedSet:
    """An environment by its pins.

    :param cuda: the CUDA major version that its torch is built for; None for the CPU.
    :param first: pins that are installed before the rest: packages that others look for while they are installed.
    :param dependencies: whether pip follows what the packages ask for. The CPU set leaves out what text needs not.
    :param note: what a user should know of it.
    """

    name: str
    cuda: Optional[int]
    note: str
    first: tuple[str, ...] = ()
    dependencies: bool = True

    @property
    def requirements(self) -> Path:
        """The file of the pins."""
        return Path(__file__).resolve().parents[1] / f"requirements-{self.name}.txt"

    @property
    def pins(self) -> dict[str, str]:
        """Version by distribution, as the file says."""
        named = _PIN.findall("\n".join([*self.first, self.requirements.read_text(encoding="utf-8")]))
        return {name.lower().replace("_", "-"): version for name, version in named}

    @property
    def folder(self) -> str:
        """The name of the environment's folder: another set of pins is another folder."""
        return f"{self.name}-{of_values(sorted(self.pins.items()))[:8]}"


CPU = PinnedSet(
    "cpu",
    None,
    "vLLM's CPU build; the set that the tests install and use",
    first=("torch==2.13.0",),
    dependencies=False,
)
CUDA_12 = PinnedSet(
    "cuda12",
    12,
    "vLLM 0.19.1, the last one whose wheels are for CUDA 12: it extracts hidden states and renders, but leaves out the"
    " last layer of DeepSeek and Kimi models; resolved, not tried on a GPU",
)
CUDA_13 = PinnedSet("cuda13", 13, "the same vLLM, torch and speculators as the CPU set; resolved, not tried on a GPU")

SETS: Mapping[str, PinnedSet] = {found.name: found for found in (CPU, CUDA_12, CUDA_13)}


@dataclass(frozen=True)
class Chosen:
    """A set for a host, and why."""

    pinned: PinnedSet
    why: str


def choose(driver: Optional[str], wanted: str = AUTO) -> Chosen:
    """The set for a host with this NVIDIA driver, None for one without.

    :param wanted: a name of ``SETS``, or ``auto``.
    :raises SetError: when the driver is too old for the set, or for all of them.
    """
    if wanted != AUTO:
        pinned = SETS[wanted]
        if pinned.cuda is not None and driver is not None and not driver_allows(driver, pinned.cuda):
            raise SetError(
                f"the set {wanted} is for CUDA {pinned.cuda}, which needs driver {_oldest(pinned.cuda)} or newer; this"
                f" host has {driver}",
                "leave set empty, or renew the driver",
            )
        return Chosen(pinned, "as given")
    if driver is None:
        return Chosen(CPU, "there is no NVIDIA driver on this host")
    if driver_allows(driver, 13):
        return Chosen(CUDA_13, f"driver {driver} runs CUDA 13")
    if driver_allows(driver, 12):
        return Chosen(CUDA_12, f"driver {driver} is older than {_oldest(13)}, which CUDA 13 needs")
    raise SetError(
        f"driver {driver} is older than {_oldest(12)}: no vLLM that extracts hidden states runs with it",
        "renew the driver, best to 580 or newer",
    )


def commands(pinned: PinnedSet, base: str, folder: str, pip_options: Optional[str] = None) -> tuple[Command, ...]:
    """What makes the environment: the virtual environment, then its packages. All of it may be run again.

    :param base: the interpreter that it is made with. :param folder: where it will be, for good.
    :raises ValueError: when ``pip_options`` is no command line.
    """
    pip = (f"{folder}/bin/python", "-m", "pip", "install", "--no-input", "--progress-bar", "off")
    more = tuple(shlex.split(pip_options or ""))
    steps = [pip + more + pinned.first] if pinned.first else []
    steps.append(pip + more + (() if pinned.dependencies else ("--no-deps",)) + ("-r", str(pinned.requirements)))
    return tuple(Command(argv) for argv in ((base, "-m", "venv", folder), *steps))


def parse_driver(text: str) -> Optional[str]:
    """The version in ``/proc/driver/nvidia/version``: ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05``;
    the open module writes ``Open Kernel Module for x86_64  580.95.05``."""
    match = re.search(r"Kernel Module\D*?(?:for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


def _oldest(cuda: int) -> str:
    return ".".join(map(str, CUDA_DRIVERS[cuda]))
