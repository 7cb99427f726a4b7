"""Recorded logs of real vLLM starts, good and broken on purpose (``tests/fixtures/broken_starts.py`` made them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.broken_start_causes import CAUSES

from eagle_console.commands.explain_log import read
from remote.watch import failures
from remote.watch.follow import LineSplitter

LOGS = Path(__file__).parent.parent / "fixtures" / "broken_start_logs"


@pytest.mark.parametrize("name", CAUSES)
def test_a_real_start_is_explained(name: str) -> None:
    cause = CAUSES[name]
    ended = json.loads((LOGS / f"{name}.json").read_text())
    explainer = read(str(LOGS / f"{name}.log"))
    cause.check(explainer.explain(ended["code"], ended["signal"]))
    if not cause.silent:
        cause.check(explainer.explain())


@pytest.mark.parametrize("name", [name for name, cause in CAUSES.items() if cause.klass])
def test_the_runner_finds_the_same_cause(name: str) -> None:
    ended = json.loads((LOGS / f"{name}.json").read_text())
    splitter, scan = LineSplitter(), failures.initial()
    for line in splitter.feed((LOGS / f"{name}.log").read_bytes()) + splitter.flush():
        scan = failures.read_line(scan, line)
    failure = failures.verdict(scan, ended["code"], ended["signal"])
    assert failure is not None
    assert failure.klass == CAUSES[name].klass


def test_every_recording_has_its_cause() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(CAUSES)
