"""Slurm's command line: what is submitted, and what its queue says. The lines of the queue are from Slurm 22.05."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.protocol.cluster import Allocation, SlurmOptions
from remote.slurm import batch, queue

JOB = "train-20261201-030000-ab12"

QUEUE = f"""\
1|RUNNING|n1|2026-12-01T02:59:38|1:59|eagle:{JOB}|None
2|PENDING||N/A|UNLIMITED|eagle:serve-20261201-030001-ab12|JobHeldUser
3|PENDING||2026-12-01T05:00:00|12:00:00|eagle:bench-20261201-030002-ab12|Nodes are DOWN, DRAINED | or reserved
4|FAILED|n[1-2]|2026-12-01T02:59:38|1:01|eagle:check-20261201-030003-ab12|NonZeroExitCode
5|RUNNING|n2|2026-12-01T02:59:38|1:59|(null)|None
slurm_load_jobs error: Unable to contact slurm controller
"""


def test_the_queue_holds_our_jobs_by_their_comment() -> None:
    jobs = queue.parse(QUEUE)
    assert [allocation.id for allocation in jobs.values()] == ["1", "2", "3", "4"]
    assert jobs[JOB] == Allocation("1", "RUNNING", "", "n1", "2026-12-01T02:59:38", "1:59")
    assert jobs["serve-20261201-030001-ab12"] == Allocation("2", "PENDING", "JobHeldUser", left="UNLIMITED")


@pytest.mark.parametrize(
    "place, words",
    [
        (0, "Slurm 1: RUNNING on n1 1:59 left"),
        (1, "Slurm 2: PENDING (JobHeldUser)"),
        (
            2,
            "Slurm 3: PENDING (Nodes are DOWN, DRAINED | or reserved) expected to start 2026-12-01 05:00:00",
        ),
        (3, "Slurm 4: FAILED (NonZeroExitCode) on n[1-2]"),
    ],
)
def test_it_is_said_in_slurms_own_words(place: int, words: str) -> None:
    assert queue.words(list(queue.parse(QUEUE).values())[place]) == words


def test_what_slurm_does_not_know_has_no_words() -> None:
    assert queue.words(None) == queue.words(Allocation()) == ""


def test_of_two_with_one_comment_the_one_that_has_not_ended_counts() -> None:
    ended, running = QUEUE.splitlines()[3].replace("check-20261201-030003-ab12", JOB), QUEUE.splitlines()[0]
    for lines in ((ended, running), (running, ended)):
        assert queue.parse("\n".join(lines))[JOB].state == "RUNNING"


@given(st.text() | st.lists(st.sampled_from([*QUEUE.splitlines(), "|", "eagle:", "x"])).map("|".join))
def test_garbage_is_passed_over(text: str) -> None:
    assert all(f"eagle:{name}" in text for name in queue.parse(text))


def test_options() -> None:
    asked = SlurmOptions("gpu", "team", "12:00:00", 2, 8, None, "0", True, ("--exclude=n7",))
    given = batch.options(JOB, "/data/my runs/50%/runner.log", asked, gpus=True, grace_seconds=300)
    assert given == [
        "--parsable", "--job-name=eagle-train", f"--comment=eagle:{JOB}", "--output=/data/my runs/50%%/runner.log",
        "--open-mode=append", "--chdir=/", "--nodes=2", "--ntasks-per-node=1", "--requeue", "--signal=B:USR2@660",
        "--partition=gpu", "--account=team", "--time=12:00:00", "--gres=gpu:8", "--mem=0", "--exclude=n7",
    ]  # fmt: skip


def test_a_stage_without_gpus_asks_for_none() -> None:
    given = batch.options(JOB, "/x.log", SlurmOptions(gpus_per_node=8), gpus=False, grace_seconds=20)
    assert not [option for option in given if "gres" in option]
    assert "--no-requeue" in given


@pytest.mark.parametrize(
    "time, seconds",
    [
        ("90", 5_400), ("90:30", 5_430), ("12:00:00", 43_200), ("2-0", 172_800), ("1-12:30", 131_400),
        ("1-12:30:15", 131_415), ("UNLIMITED", None), ("", None), ("-1", None), ("1:2:3:4", None),
    ],
)  # fmt: skip
def test_time_limits(time: str, seconds: int | None) -> None:
    assert batch.seconds(time) == seconds


@pytest.mark.parametrize(
    "time, grace, warning", [(None, 20, 120), (None, 300, 660), ("2", 300, 60), ("1", 20, 30), ("UNLIMITED", 20, 120)]
)
def test_the_limit_is_announced_in_time_to_save(time: str | None, grace: float, warning: int) -> None:
    assert batch.warning_seconds(time, grace) == warning


def test_the_runner_takes_the_shells_place(tmp_path: Path) -> None:
    said = tmp_path / "it's said"
    text = batch.script(
        ["export WHAT='two  words'"], ["/bin/sh", "-c", 'echo "$WHAT" $PPID $$ > "$1"', "sh", str(said)]
    )
    path = tmp_path / "batch.sh"
    path.write_text(text)
    with subprocess.Popen(["bash", str(path)]) as process:
        process.wait(10)
    words, _, pid = said.read_text().rstrip().rpartition(" ")
    assert words.startswith("two  words ") and int(pid) == process.pid
