"""Job directories that somebody else put into the workspace: shown, and no signal or command is led astray by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.jobkit import ROOT, Bench, until

from remote import procfs
from remote.jobs import ownership, records
from remote.jobs.records import write_record
from remote.jobs.signals import send
from remote.protocol import jobs
from remote.protocol.codec import to_wire
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.jobs import JobStarted, JobState, ProcessId

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a directory of another user needs root")


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that has nothing to do with any job."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessId:
    found = procfs.identity(process.pid)
    assert found
    return found


def plant(bench: Bench, runner: ProcessId, main: ProcessId, marker: Path) -> None:
    """Records that name processes as this job's, and a command that must not run."""
    bench.write(f"open({str(marker)!r}, 'w')")
    write_record(os.path.join(bench.directory, records.LOCK), runner, durable=False)
    write_record(os.path.join(bench.directory, records.STARTED), JobStarted(runner, main, main.pid, 1.0), durable=False)
    state = JobState(jobs.RUNNING, time.time(), processes=(main,))
    write_record(os.path.join(bench.directory, records.STATE), state, durable=False)


def test_a_planted_runner_gets_no_signal(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    bench = Bench(tmp_path)
    plant(bench, identity(victim), identity(victim), tmp_path / "ran")
    assert bench.job().state == jobs.RUNNING
    with pytest.raises(RequestError, match=f"process {victim.pid} .* is not its runner") as caught:
        bench.launcher.stop(bench.id, "the test", force=True)
    assert caught.value.code == REFUSED
    time.sleep(0.2)  # a signal would have arrived
    assert victim.poll() is None


@needs_root
def test_what_another_user_planted_is_neither_ended_nor_run(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    bench = Bench(tmp_path)
    dead = ProcessId(identity(victim).pid, 1, procfs.boot_id())
    plant(bench, dead, identity(victim), tmp_path / "ran")
    os.chown(bench.directory, NOBODY, NOBODY)
    assert bench.job().state == jobs.UNSUPERVISED
    with pytest.raises(RequestError, match="made by another user") as caught:
        bench.launcher.stop(bench.id, "the test", force=True)
    assert caught.value.code == REFUSED
    for name in (records.STARTED, records.STATE, records.LOCK):
        os.unlink(os.path.join(bench.directory, name))
    runner = subprocess.run(
        [*bench.bundle.command, bench.directory], env={**os.environ, **bench.bundle.variables}, capture_output=True
    )
    assert (runner.returncode, runner.stderr) == (2, b"another user made this job directory\n")
    assert not (tmp_path / "ran").exists()
    assert victim.poll() is None


def test_a_runner_is_known_by_its_own_command_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("sleep_for_ever()").start()
    until(lambda: os.path.exists(os.path.join(bench.directory, records.STARTED)))
    runner = bench.store.records(bench.id).runner
    assert runner
    other = tmp_path / "other"
    other.mkdir()
    assert ownership.is_runner_of(runner, bench.directory)
    assert ownership.is_runner_of(runner, bench.directory + "/.")
    assert not ownership.is_runner_of(runner, str(other))
    assert not ownership.is_runner_of(ProcessId(os.getpid(), 0, ""), bench.directory)
    bench.launcher.stop(bench.id, "the test", force=True)
    bench.wait_for(jobs.STOPPED)


@needs_root
def test_whose_a_directory_is(tmp_path: Path) -> None:
    assert ownership.is_ours(str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)
    assert not ownership.is_ours(str(tmp_path))


def test_records_never_name_a_process_of_another_boot_or_start(victim: subprocess.Popen[bytes]) -> None:
    true = identity(victim)
    for wrong in (
        ProcessId(true.pid, true.start_ticks + 1, true.boot_id),
        ProcessId(true.pid, true.start_ticks, "another-boot"),
        ProcessId(-1, true.start_ticks, true.boot_id),
        ProcessId(0, 0, true.boot_id),
    ):
        assert not send(wrong, signal.SIGTERM)
    assert victim.poll() is None


def test_job_directories_can_be_written_by_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask: whoever could write there could name the processes that a stop ends."""
    script = (
        "import os, sys\nos.umask(0)\n"
        "from agent.jobkit import Bench\n"
        "from pathlib import Path\n"
        "from remote.protocol.stages import LaunchRequest\n"
        "bench = Bench(Path(sys.argv[1]))\n"
        "request = LaunchRequest('serve')\n"
        "plan = bench.launcher._plan(request, bench.launcher._gatherer(request.context))\n"
        "print(bench.launcher._create(plan, request, None))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert os.stat(made).st_mode & 0o777 == 0o755
    spec = os.path.join(made, records.SPEC)
    assert os.stat(spec).st_mode & 0o777 == 0o644
    assert json.loads(Path(spec).read_text())["schema"] == to_wire(jobs.SCHEMA)
