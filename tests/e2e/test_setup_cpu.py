"""The stage ``setup`` with the real CPU set, from the package index that pip here is set to: some minutes, 3 GB."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fixtures.stages import Workspace

from pipeline.plan import environment, made, sets, versions
from pipeline.plan.versions import Situation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_cpu_set_is_installed_and_proven(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    ended = workspace.run("setup", set="cpu", base=sys.executable, seconds=1500)
    assert ended.code == 0, ended.output[-3000:]
    assert ended.evidence["pins"] == len(sets.CPU.pins) and ended.evidence["vllm"] == "0.32.0"
    assert ended.evidence["speculators"] == "0.9.0"
    python = made.read(str(tmp_path))
    assert python == str(tmp_path / "ml" / "bin" / "python")
    found = environment.inspect(python)
    assert found.cpu_only and versions.check(Situation(found.versions)) == []
    checked = Workspace(tmp_path, python).run("check", seconds=300)
    assert checked.code == 0 and "everything that the pipeline needs can be imported" in checked.output
