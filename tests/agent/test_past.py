"""The operations that look back, asked of an agent's capabilities over a real workspace."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from jobkit import Bench

from remote.capabilities import Capabilities
from remote.jobs import records
from remote.jobs.starts import StartsFile
from remote.policy import Policy
from remote.protocol.errors import BAD_ARGUMENT, NOT_FOUND, RequestError
from remote.protocol.jobs import JobSpec
from remote.protocol.series import TrainingSeries
from remote.protocol.starts import EarlierStarts
from remote.watch.history import PastStart, StartKey


def capabilities(workspace: Path) -> Capabilities:
    return Capabilities(Policy(False, "", (str(workspace),), str(workspace)))


def training_job(workspace: Path) -> str:
    bench = Bench(workspace).write("")
    path = os.path.join(bench.directory, records.SPEC)
    spec = records.read_record(path, JobSpec)
    assert spec is not None
    records.write_record(path, dataclasses.replace(spec, stage="train", parameters={"run": "7b"}), durable=False)
    return bench.id


def test_the_course_of_a_job_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    job = training_job(tmp_path)
    series = capabilities(tmp_path).operations["series"]
    empty = series({"job": job}, None)
    assert isinstance(empty, TrainingSeries) and empty.job == job and "not recorded" in empty.problem
    folder = tmp_path / "output_7b"
    folder.mkdir()
    lines = [{"t": n, "kind": "train", "step": n, "train": {"loss": 9.0 - n}} for n in range(3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = series({"job": job[:-2]}, None)
    assert (found.job, found.folder, found.series[0].values) == (job, str(folder), (9.0, 8.0, 7.0))


def test_a_job_or_a_process_that_is_not_there(tmp_path: Path) -> None:
    series = capabilities(tmp_path).operations["series"]
    for args, code in (({"job": "train-9"}, NOT_FOUND), ({"job": "adopted-1"}, NOT_FOUND), ({}, BAD_ARGUMENT)):
        with pytest.raises(RequestError) as raised:
            series(args, None)
        assert raised.value.code == code


def test_earlier_starts_the_newest_first(tmp_path: Path) -> None:
    starts = capabilities(tmp_path).operations["starts"]
    assert starts({}, None) == EarlierStarts()
    file = StartsFile(str(tmp_path))
    key = StartKey(model="/m", filesystem="/data xfs", tensor_parallel=8, version="0.22.0", cache="warm")
    for wall in range(1, 41):
        file.append(PastStart(key, {"weights": 10.0 + wall, "start": 4.0}, 5e9, warm=False, wall=100.0 * wall))
    found = starts({}, None)
    assert isinstance(found, EarlierStarts) and len(found.starts) == 32
    newest = found.starts[0]
    assert (newest.wall, newest.model, newest.tensor_parallel, newest.warm) == (4_000.0, "/m", 8, False)
    assert list(newest.spans) == ["start", "weights"] and newest.seconds == 54.0
    assert Capabilities(Policy(True, "", (), None)).operations["starts"]({}, None) == EarlierStarts()
