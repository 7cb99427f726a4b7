"""The course of a training run: thinning keeps the extremes, and both kinds of records give the same series."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.jobs.courses import Courses
from remote.policy import Policy
from remote.protocol.adopted import Adopted
from remote.protocol.codec import MAX_FRAME_BYTES, to_wire
from remote.protocol.jobs import Job
from remote.protocol.series import MAX_POINTS, Series, TrainingSeries
from remote.watch.course import Course, LogReader, RecordReader
from remote.watch.thinning import Thinned, thin

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDS = FIXTURES / "speculators_run" / "metrics.jsonl"

_values = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32))
_points = st.lists(
    st.tuples(st.integers(0, 10**9), _values), min_size=0, max_size=600, unique_by=lambda point: point[0]
).map(sorted)


@given(_points, st.integers(4, 60))
@settings(max_examples=200, deadline=None)
def test_thinning_keeps_ends_and_extremes_in_order(points: list[tuple[int, float | None]], limit: int) -> None:
    thinned = thin(points, limit)
    assert len(thinned) <= max(limit, 0)
    assert set(thinned) <= set(points)
    assert [step for step, _ in thinned] == sorted({step for step, _ in thinned})
    if points:
        assert thinned[0] == points[0] and thinned[-1] == points[-1]
    numbers = [value for _, value in points if value is not None]
    kept = [value for _, value in thinned if value is not None]
    if numbers:
        assert (min(kept), max(kept)) == (min(numbers), max(numbers))


def test_few_points_stay_as_they_are() -> None:
    points = [(1, 3.0), (2, None), (9, 1.0)]
    assert thin(points, 4) == points


def test_a_stretch_without_numbers_stays_a_gap() -> None:
    points: list[tuple[int, float | None]] = [(n, None if 300 <= n < 700 else 1.0) for n in range(1000)]
    thinned = thin(points, 20)
    assert any(value is None for step, value in thinned if 350 <= step < 650)


def test_a_long_series_stays_bounded_and_keeps_a_spike() -> None:
    series = Thinned(MAX_POINTS)
    for step in range(100_000):
        series.add(step, 1_000.0 if step == 41_234 else 2.0)
    assert len(series._points) <= 8 * MAX_POINTS
    points = series.points()
    assert len(points) <= MAX_POINTS
    assert (41_234, 1_000.0) in points
    assert points[0][0] == 0 and points[-1][0] == 99_999


def test_steps_that_are_trained_again_replace_the_first_try() -> None:
    series = Thinned(8)
    for step in (1, 2, 3, 4):
        series.add(step, float(step))
    series.add(3, 30.0)
    assert series.points() == [(1, 1.0), (2, 2.0), (3, 30.0)]


def read(lines: list[str]) -> Course:
    course = Course()
    reader = RecordReader(course)
    for line in lines:
        reader.read_line(line)
    return course


def named(series: tuple[Series, ...]) -> dict[str, Series]:
    return {item.name: item for item in series}


def test_the_records_of_a_real_run() -> None:
    course = read(RECORDS.read_text().splitlines())
    found = named(course.series)
    assert found["loss"].steps[:2] == (1, 2)
    assert found["loss"].values[0] == pytest.approx(43.632, abs=1e-3)
    assert found["predicted_length"].values[0] == 1.0
    assert found["validation_loss"].steps == (18, 36, 54, 72)
    assert found["validation_predicted_length"].values[0] == pytest.approx(1 + 0.91964 + 0.22321 + 0.11607, abs=1e-4)
    assert {"accuracy_0", "accuracy_1", "accuracy_2", "learning_rate", "tokens_per_second", "data_wait"} <= set(found)
    assert course.epochs == (0, 18, 36, 54)
    assert [saved.step for saved in course.checkpoints] == [18, 36, 54, 72]
    assert course.checkpoints[0].bytes == 116_474
    assert course.broken_since is None


def record(kind: str, t: float = 0.0, **fields: Any) -> str:
    return json.dumps({"t": t, "kind": kind, **fields})


def test_the_rate_is_of_stretches_without_pauses() -> None:
    lines = [record("step", t=t, global_step=10 * t, waiting=0.1) for t in range(7)]
    lines += [record("phase", t=7, name="save"), record("phase", t=100, name="train")]
    lines += [record("step", t=100 + t, global_step=70 + 5 * t) for t in range(7)]
    rates = named(read(lines).series)["steps_per_second"]
    assert set(rates.values) == {10.0, 5.0}


def test_a_loss_that_is_no_number_is_a_gap_and_said() -> None:
    lines = [record("train", step=n, train={"loss": None if n >= 5 else 1.0}) for n in range(8)]
    course = read(lines)
    assert course.broken_since == 6
    assert named(course.series)["loss"].values[5] is None
    mended = read([*lines, record("train", step=8, train={"loss": 2.0})])
    assert mended.broken_since is None


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "{", '{"kind":"train"}', '{"kind":"train","step":true,"train":{"loss":1}}',
        '{"kind":"train","step":1,"train":[]}', '{"kind":"val","step":-1,"val":{"loss_epoch":1}}',
        '{"kind":"saved","path":7}', '{"kind":["train"]}', '{"kind":"epoch","global_step":"x"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_record_is_passed_over(line: str) -> None:
    course = read([line])
    assert course.series == () and course.checkpoints == () and course.epochs == ()


@given(st.text() | st.dictionaries(st.text(max_size=9), st.none() | st.floats() | st.text() | st.integers()).map(repr))
@settings(max_examples=200, deadline=None)
def test_hostile_lines_do_no_harm(line: str) -> None:
    read([line, '{"kind":"train","step":3,"train":{"loss":1e400}}'])


def console_output() -> list[str]:
    """Lines of a real run, without the seconds that the fixture keeps beside them."""
    text = (FIXTURES / "speculators_train.log").read_text()
    return [line.partition("\t")[2] for line in text.split("\n") if line]


def test_the_console_output_of_speculators() -> None:
    course = Course()
    reader = LogReader(course)
    for line in console_output():
        reader.read_line(line)
    found = named(course.series)
    assert found["loss"].steps == tuple(range(1, 50))
    assert (found["loss"].values[0], found["loss"].values[-1]) == (22.931, 10.512)
    assert found["accuracy_0"].values[-1] == 0.146 and found["predicted_length"].values[-1] == 1.157
    assert found["validation_loss"].values[-1] == 12.862 and len(found["validation_loss"].steps) == 3
    assert [saved.step for saved in course.checkpoints][-1] == 49
    assert len(course.epochs) == 3 and course.epochs[0] == 0
    assert reader.folder


def policy(workspace: Path | None, confined: bool = False) -> Policy:
    return Policy(False, "", (str(workspace),), str(workspace) if workspace else None, confined)


def job(run: str = "1k") -> Job:
    return Job("train-1", "train", "task", "running", 0.0, "host", {"run": run})


def test_a_file_is_read_as_it_grows_and_anew_when_it_is_another(tmp_path: Path) -> None:
    courses = Courses(policy(tmp_path))
    assert courses.of_job(job()).problem == "the run has not recorded anything yet"
    folder = tmp_path / "output_1k"
    folder.mkdir()
    path = folder / "metrics.jsonl"
    lines = [record("train", step=n, train={"loss": float(n)}) + "\n" for n in range(6)]
    path.write_text("".join(lines[:3]) + lines[3][:9])
    first = courses.of_job(job())
    assert named(first.series)["loss"].values == (0.0, 1.0, 2.0)
    assert (first.folder, first.source, first.complete, first.problem) == (str(folder), str(path), True, "")
    with path.open("a") as file:
        file.write(lines[3][9:] + "".join(lines[4:]))
    assert named(courses.of_job(job()).series)["loss"].values == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    path.unlink()
    path.write_text(lines[1])
    assert named(courses.of_job(job()).series)["loss"].values == (1.0,)


@pytest.mark.parametrize("run", ["../../etc", "", "a/b", "x" * 90])
def test_a_run_name_that_leads_elsewhere_is_no_run(tmp_path: Path, run: str) -> None:
    assert courses_problem(tmp_path, run).startswith("train-1 belongs to no")


def courses_problem(workspace: Path, run: str) -> str:
    return Courses(policy(workspace)).of_job(job(run)).problem


def test_a_fifo_or_a_link_is_never_read(tmp_path: Path) -> None:
    folder = tmp_path / "output_1k"
    folder.mkdir()
    os.mkfifo(folder / "metrics.jsonl")
    assert "regular" in courses_problem(tmp_path, "1k")
    os.unlink(folder / "metrics.jsonl")
    (folder / "metrics.jsonl").symlink_to("/etc/hostname")
    assert "cannot be read" in courses_problem(tmp_path, "1k")


def test_an_adopted_run_gives_its_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(console_output()) + "\n")
    found = Courses(policy(None)).of_adopted(Adopted("adopted-7", "x", "training", "running", log=str(log)))
    assert found.job == "adopted-7" and found.source == str(log) and found.series
    without = Courses(policy(None)).of_adopted(
        Adopted("adopted-7", "x", "training", "running", log_note="stdout is a pipe")
    )
    assert without.problem == "no log: stdout is a pipe"


def test_what_a_foreign_process_names_is_read_only_where_the_host_allows_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "allowed", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(record("train", step=0, train={"loss": 1.0}) + "\n")
    confined = Courses(policy(inside, confined=True))
    assert confined.of_adopted(Adopted("adopted-7", "x", "training", "running", output=str(inside))).series
    refused = confined.of_adopted(Adopted("adopted-8", "x", "training", "running", output=str(outside)))
    assert not refused.series and refused.problem.startswith("no log")
    assert (
        Courses(policy(inside)).of_adopted(Adopted("adopted-8", "x", "training", "running", output=str(outside))).series
    )


def test_the_largest_answer_fits_a_frame(tmp_path: Path) -> None:
    folder = tmp_path / "output_1k"
    folder.mkdir()
    values = {"loss": 1.234567} | {f"{kind}_acc_{n}": 0.123456 for kind in ("cond", "full") for n in range(9)}
    with (folder / "metrics.jsonl").open("w") as file:
        for n in range(3_000):
            step = 10_000_000 + n
            rest = {"lr": 1.23456e-5, "profile": {"tokens_per_s": 12345.6, "fetch_frac": 0.123456}}
            file.write(record("train", t=1e9 + 2 * n, step=step, train=values, **rest) + "\n")
            file.write(record("epoch", global_step=step, local_step=0) + "\n")
            file.write(record("saved", t=1e9, path="/data/" + "x" * 200 + str(n), epoch=n, global_step=step) + "\n")
    found = Courses(policy(tmp_path)).of_job(job())
    assert isinstance(found, TrainingSeries) and len(found.series) >= 13
    assert len(json.dumps(to_wire(found))) < MAX_FRAME_BYTES - 1024
