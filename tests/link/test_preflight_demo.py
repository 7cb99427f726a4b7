"""Preflight on the embedded host: a launch that would fill its disk is refused with the forecast in numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fixtures import ml_environment

from pipeline.plan import manifest
from pipeline.plan.events import Evidence
from pipeline.plan.layout import Run
from pipeline.plan.manifest import Manifest

pytestmark = pytest.mark.system

TOKENS = 10**12
"""Of a data set whose states no disk holds: 4 layers x 64 x 2 bytes each, 512 TB."""


class Demo:
    """The command line against an embedded host whose ML environment looks complete."""

    def __init__(self, root: Path) -> None:
        python, self.verifier = ml_environment.make(root / "pipeline")
        (root / "pipeline" / "SmolLM2-135M-Instruct").symlink_to(self.verifier)
        names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CI")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in names},
            "HOME": str(root),
            "EAGLE_CONSOLE_DEMO_HOME": str(root / "demo"),
            "EAGLE_CONSOLE_PIPELINE": str(python.parents[2]),
        }
        self.workspace = root / "demo" / "workspace"

    def __call__(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "eagle_console.cli", *words],
            env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def prepared(self, name: str, tokens: int) -> None:
        """A run whose data set is prepared, as its manifest says."""
        run = Run(str(self.workspace), name)
        run.prepared.mkdir(parents=True)
        (run.prepared / "data-00000-of-00001.arrow").touch()
        proven = (Evidence("rows", 1000, "rows"), Evidence("tokens", tokens, "tokens"))
        manifest.write(run.manifest("prepare"), Manifest("prepare", name, {}, evidence=proven, wall=time.time()))


def blocked(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [check for check in checks if check["verdict"] == "blocked"]


def test_a_launch_that_would_fill_the_disk_is_refused_in_numbers(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    code, _, err = demo("status", "demo", "--json")
    assert code == 0, err
    demo.prepared("huge", TOKENS)
    demo.prepared("small", 1000)
    words = ("run", "demo", "extract", "run=huge", f"verifier={demo.verifier}")

    code, out, _ = demo(*words, "--dry-run", "--json")
    assert code == 0
    (check,) = blocked(json.loads(out)["checks"])
    free = shutil.disk_usage(demo.workspace).free
    assert check["rule"] == "disk"
    assert "1,000,000,000,000 tokens, 0.5 kB each: 512,000 GB" in check["reason"]
    assert f"{free / 1e9:,.1f}"[:-2] in check["reason"] and "are missing" in check["reason"]
    assert "prune" in check["remedy"]

    code, out, err = demo(*words)
    assert code == 5, (out, err)
    assert "extract cannot be launched: disk:" in err and "512,000 GB" in err and "--force disk" in err
    code, out, err = demo(*words, "--force", "memory", "--yes")
    assert code == 5, "another check's name does not help"
    assert not list((demo.workspace / ".eagle_console" / "jobs").glob("extract-*"))

    code, out, _ = demo("run", "demo", "extract", "run=small", f"verifier={demo.verifier}", "--dry-run", "--json")
    assert blocked(json.loads(out)["checks"]) == []
    code, out, _ = demo("stages", "demo", "--json")
    rules = {check["rule"] for stage in json.loads(out)["stages"] for check in stage["checks"]}
    assert {"workspace", "python", "versions", "open_files"} <= rules
