"""Two jobs side by side: what differs, by how much, and that unknown stays unknown; the command and its JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from eagle_console import cli
from eagle_console.client import HostClient
from eagle_console.comparing import Pair, change_words, compare, document, one_before, value_words
from eagle_console.exit_codes import ExitCode
from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.codec import to_wire
from remote.protocol.errors import NOT_FOUND, RequestError
from remote.protocol.jobs import Job
from remote.protocol.progress import Evidence, Phase, Progress
from remote.protocol.training import Training

FIGURES = {"loss": 1.9, "cond_acc_0": 0.6, "full_acc_0": 0.6, "predicted_acceptance": 1.8, "validation_loss": 2.0,
           "steps_per_second": 6.0, "tokens_per_second": 41_000.0, "waiting_for_data": 0.03, "step": 9.0}  # fmt: skip

OLD = Job(
    "train-1", "train", "task", "done", 1.0, "host", {"run": "1k", "lr": 1e-4, "epochs": 10}, seconds=600.0,
    progress=Progress("proof", figures=FIGURES, ready=True), evidence=(Evidence("best_epoch", 7),),
)  # fmt: skip
NEW = replace(
    OLD, id="train-2", seconds=660.0, parameters={"run": "2k", "lr": 1e-4, "muon": True}, evidence=(),
    progress=Progress("proof", figures={**FIGURES, "loss": 1.71, "predicted_acceptance": 2.07}),
)  # fmt: skip


def by_name(pairs: tuple[Pair, ...]) -> dict[str, Pair]:
    return {pair.name: pair for pair in pairs}


def test_settings_that_differ_come_first() -> None:
    found = compare(OLD, NEW)
    assert [(pair.name, pair.left, pair.right) for pair in found.settings] == [
        ("run", "1k", "2k"), ("epochs", 10, None), ("muon", None, True), ("lr", 1e-4, 1e-4),
    ]  # fmt: skip


def test_results_are_those_of_the_jobs_themselves() -> None:
    results = by_name(compare(OLD, NEW).results)
    assert results["loss"].change == pytest.approx(-0.19)
    assert results["predicted acceptance"].change == pytest.approx(0.27)
    assert (results["duration"].left, results["duration"].right) == (600.0, 660.0)
    assert (results["best epoch"].left, results["best epoch"].right, results["best epoch"].change) == (7, None, None)
    assert results["state"].change is None and not results["state"].differs
    assert results["accuracy 0"].left == 0.6 and results["steps/s"].left == 6.0


def test_jobs_that_train_nothing_have_their_phases() -> None:
    one = Job(
        "serve-1", "serve", "service", "ready", 1.0, "host", {}, progress=Progress("ready", (Phase("weights", 4, 9),))
    )
    other = replace(one, progress=Progress("weights", (Phase("weights", 4),)))
    results = by_name(compare(one, other).results)
    assert results["phase weights"].left == 5 and results["phase weights"].right is None


def test_an_adopted_run_has_the_figures_of_its_log() -> None:
    record = Adopted("adopted-7", "x", "training", "running", training=Training(loss=1.5, predicted_length=1.9))
    job = Job("adopted-7", "train", "task", "running", 1.0, "host", {})
    results = by_name(compare(OLD, job, [record]).results)
    assert results["loss"].right == 1.5 and results["predicted acceptance"].right == 1.9


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (Pair("x", 2.0, 2.5), "+0.5 (+25%)"),
        (Pair("x", 2.5, 2.0), "-0.5 (-20%)"),
        (Pair("x", -2.0, -1.0), "+1 (+50%)"),
        (Pair("x", 0, 3), "+3"),
        (Pair("x", 600.0, 660.0, "s"), "+1:00 (+10%)"),
        (Pair("x", 9e9, 8e9, "bytes"), "-1.0 GB (-11%)"),
        (Pair("x", 1.0, 1.0), ""),
        (Pair("x", None, 1.0), ""),
        (Pair("x", True, False), "differs"),
        (Pair("x", "done", "failed"), "differs"),
    ],
)
def test_changes_in_words(pair: Pair, words: str) -> None:
    assert change_words(pair) == words


def test_the_one_before() -> None:
    jobs = [replace(OLD, id=name, created=at) for name, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    other = replace(OLD, id="serve-1", stage="serve", created=2.5)
    found = [one_before(job, [*jobs, other]) for job in (*jobs, other)]
    assert [job.id if job else None for job in found] == ["b", "a", "b", None]


def test_values_in_words() -> None:
    assert [value_words(value) for value in (None, True, 10_000, 1.84123, "[/x]\x1b[2J")] == [
        "–", "yes", "10,000", "1.841", "[/x]",
    ]  # fmt: skip


def test_the_document() -> None:
    found = document(compare(OLD, NEW))
    assert found["jobs"] == ["train-1", "train-2"]
    assert found["settings"][0] == {"name": "run", "values": ["1k", "2k"], "differs": True}
    loss = next(item for item in found["results"] if item["name"] == "loss")
    assert loss["values"] == [1.9, 1.71] and loss["change"] == pytest.approx(-0.19)
    json.dumps(found, allow_nan=False)


class Session:
    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        if op == "adopt":
            record = Adopted("adopted-7", "x", "training", "running", training=Training(loss=1.5))
            wire: dict[str, Any] = to_wire(record)
            return wire
        if op == "adopted":
            listed: dict[str, Any] = to_wire(AdoptedList((Adopted("adopted-7", "x", "training", "running"),)))
            return listed
        found = {job.id: job for job in (OLD, NEW)}.get((args or {}).get("job", ""))
        if found is None:
            raise RequestError(NOT_FOUND, "there is no such job")
        job: dict[str, Any] = to_wire(found)
        return job


@pytest.fixture
def host(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))

    @asynccontextmanager
    async def connected(*_: Any) -> AsyncIterator[HostClient]:
        yield HostClient(Session())  # type: ignore[arg-type]

    monkeypatch.setattr("eagle_console.commands.invocation.connect", connected)


@pytest.mark.usefixtures("host")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "root@gpu-box", "train-1", "train-2"]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert "train-1" in lines[0] and "train-2" in lines[0] and "CHANGE" in lines[0]
    assert lines[1].split() == ["*", "run", "1k", "2k"]
    assert next(line for line in lines if "loss" in line).split()[:4] == ["loss", "1.9", "1.71", "-0.19"]
    assert cli.main(["compare", "root@gpu-box", "train-1", "train-2", "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["jobs"] == ["train-1", "train-2"]
    assert cli.main(["compare", "root@gpu-box", "train-1", "7"]) == ExitCode.DONE
    assert "adopted-7" in capsys.readouterr().out
    assert cli.main(["compare", "root@gpu-box", "train-1", "nothing"]) == ExitCode.FAILED
    assert cli.main(["compare", "root@gpu-box", "train-1"]) == ExitCode.USAGE
