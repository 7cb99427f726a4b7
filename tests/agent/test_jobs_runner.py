"""The runner over real process trees: what it records, and that an end leaves nothing and takes nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobkit import Bench, living, until

from remote import procfs
from remote.jobs import records
from remote.jobs.records import write_record
from remote.jobs.signals import send
from remote.jobs.store import JobStore
from remote.protocol import jobs
from remote.protocol.errors import CONFLICT, RequestError
from remote.protocol.jobs import JobStarted, JobState, ProcessId, StopRequest

TREE = """
child("plain")
child("session", os.setsid)
child("daemon", fork_away, os.setsid, fork_away)
child("deaf", ignore_term)
"""


@pytest.fixture
def bench(tmp_path: Path):
    bench = Bench(tmp_path)
    yield bench
    runner = bench.runner()
    if runner is not None and procfs.alive(runner):
        write_record(os.path.join(bench.directory, records.STOP), StopRequest(0.0, force=True), durable=False)
        until(lambda: not procfs.alive(runner))


def test_a_task_that_succeeds(bench: Bench) -> None:
    bench.write("print('one'); print('two', file=sys.stderr)").start()
    job = bench.wait_for(jobs.DONE)
    assert (job.code, job.signal, job.failure) == (0, None, None)
    assert job.progress.ready and job.pids == ()
    assert sorted(bench.log().split()) == ["one", "two"]
    events = bench.store.events(bench.id, 0)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [events[0].kind, events[-1].kind] == [jobs.EVENT_STARTED, jobs.EVENT_ENDED]
    until(lambda: not procfs.alive(bench.runner()))


def test_what_is_recorded_while_it_runs(bench: Bench) -> None:
    bench.write("note('main'); print('x' * 99, flush=True); sleep_for_ever()").start()
    main = bench.noted("main")["main"]
    bench.wait_for(jobs.RUNNING)
    job = until(lambda: next((job for job in [bench.job()] if job.silent is not None), None))  # state.json is there
    assert job.pids == (main.pid,)
    assert os.getsid(main.pid) == main.pid, "a session of its own"
    assert os.readlink(f"/proc/{main.pid}/fd/0") == "/dev/null"
    index = Path(bench.directory, records.INDEX)
    until(lambda: index.exists() and json.loads(index.read_text().splitlines()[-1])[1] == 100)
    sample = json.loads(until(lambda: Path(bench.directory, records.SAMPLES).read_text()).splitlines()[0])
    assert sample["processes"] == 1 and sample["rss"] > 1e6
    assert job.silent < 6


def test_a_task_that_fails(bench: Bench) -> None:
    bench.write("sys.exit(3)").start()
    job = bench.wait_for(jobs.FAILED)
    assert job.code == 3 and job.failure is not None


def test_a_stage_that_cannot_be_started(bench: Bench) -> None:
    bench.write("", argv=("/nowhere/python",)).start()
    job = bench.wait_for(jobs.FAILED)
    assert job.failure is not None and job.failure.klass == "cannot_start" and "/nowhere/python" in job.failure.cause


def test_a_service_that_ends_by_itself_has_failed(bench: Bench) -> None:
    bench.write("sys.exit(0)", kind=jobs.KIND_SERVICE).start()
    job = bench.wait_for(jobs.FAILED)
    assert job.code == 0


def test_a_service_is_ready_when_its_health_check_answers(bench: Bench, unused_tcp_port: int) -> None:
    code = f"""
import http.server
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("well") else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {unused_tcp_port}), Health).serve_forever()
"""
    bench.write(code, jobs.KIND_SERVICE, health_url=f"http://127.0.0.1:{unused_tcp_port}/health").start()
    bench.wait_for(jobs.RUNNING)
    until(lambda: "503" in bench.log())
    assert bench.job().state == jobs.RUNNING, "an answer that is not 200 is not ready"
    (bench.workspace / "well").touch()
    job = bench.wait_for(jobs.READY)
    assert job.progress.ready
    assert any(line.startswith("ready: Ready after") for line in bench.events())
    (bench.workspace / "well").unlink()
    job = bench.wait_for(jobs.RUNNING, seconds=30)
    assert "was ready; the health check fails: answers 503" in until(lambda: bench.job().note)
    assert any(line.startswith("warning: The health check fails") for line in bench.events())
    (bench.workspace / "well").touch()
    bench.wait_for(jobs.READY)
    bench.stop()
    assert bench.wait_for(jobs.STOPPED).progress.ready is False


def test_a_stop_ends_the_whole_tree_and_nothing_else(bench: Bench) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        bench.write(TREE + "ignore_term(); note('main'); sleep_for_ever()").start()
        processes = bench.noted("main", "plain", "session", "daemon", "deaf")
        assert bench.stop().state == jobs.STOPPING
        job = bench.wait_for(jobs.STOPPED)
        assert living(processes) == []
        assert bystander.poll() is None
        assert job.signal == signal.SIGKILL
        signals = [line for line in bench.events() if line.startswith("signal:")]
        assert "SIGTERM to the main process" in signals[0]
        assert "SIGTERM to" in signals[1] and "SIGKILL to 2 processes" in signals[2]
    finally:
        bystander.kill()
        bystander.wait()


def test_the_main_process_may_finish_before_its_children_are_touched(bench: Bench) -> None:
    code = """
def told(number, frame):
    note("child-told")
    os._exit(0)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, told)
    note("child")
    sleep_for_ever()
def save(number, frame):
    time.sleep(0.7)
    note("saved")
    os._exit(0)
signal.signal(signal.SIGTERM, save)
note("main")
sleep_for_ever()
"""
    bench.write(code, grace_seconds=10.0).start()
    bench.noted("main", "child")
    bench.stop()
    job = bench.wait_for(jobs.STOPPED)
    order = [line.split()[0] for line in (bench.workspace / "noted").read_text().splitlines()]
    assert order.index("saved") < order.index("child-told")
    assert (job.code, job.signal) == (0, None)


def test_a_killed_main_process_leaves_nothing(bench: Bench) -> None:
    bench.write(TREE + "note('main'); sleep_for_ever()", jobs.KIND_SERVICE).start()
    processes = bench.noted("main", "plain", "session", "daemon", "deaf")
    os.kill(processes["main"].pid, signal.SIGKILL)
    job = bench.wait_for(jobs.FAILED)
    assert living(processes) == []
    assert job.signal == signal.SIGKILL
    ending = bench.store.records(bench.id).exit
    assert ending is not None and ending.killed == 4 and ending.survivors == ()


def test_a_tree_that_keeps_forking_is_ended(bench: Bench) -> None:
    code = """
ignore_term()
note("main")
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:  # each generation makes the next and ends: no process lives longer than a tenth of a second
            time.sleep(0.1)
            if os.fork():
                os._exit(0)
while True:
    child("deaf")
    time.sleep(0.1)
"""
    bench.write(code + f"# {bench.id}").start()
    bench.noted("main")
    runner = bench.runner()
    assert runner is not None

    def marked() -> list[int]:
        return [pid for pid in procfs.table() if bench.id in (procfs.command_line(pid) or "") and pid != runner.pid]

    until(lambda: len(marked()) > 8)
    bench.stop(force=True)
    bench.wait_for(jobs.STOPPED)
    assert marked() == []


def test_a_stop_before_the_start(bench: Bench) -> None:
    bench.write("note('main')")
    write_record(os.path.join(bench.directory, records.STOP), StopRequest(time.time(), "a test"), durable=False)
    bench.start()
    bench.wait_for(jobs.STOPPED)
    assert not (bench.workspace / "noted").exists()


def test_a_forced_stop_cuts_the_grace_of_a_gentle_one(bench: Bench) -> None:
    bench.write("ignore_term(); note('main'); sleep_for_ever()", grace_seconds=300.0).start()
    processes = bench.noted("main")
    bench.stop()
    begin = time.monotonic()
    bench.stop(force=True)
    bench.wait_for(jobs.STOPPED)
    assert time.monotonic() - begin < 5 and living(processes) == []


def test_sigterm_to_the_runner_is_a_stop(bench: Bench) -> None:
    bench.write("note('main'); sleep_for_ever()").start()
    processes = bench.noted("main")
    runner = bench.runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGHUP)
    os.kill(runner.pid, signal.SIGTERM)
    bench.wait_for(jobs.STOPPED)
    assert living(processes) == []
    assert any("a signal to the runner" in line for line in bench.events())


def test_signals_that_the_runner_drops_reach_the_stage_as_usual(bench: Bench) -> None:
    code = "print(*map(repr, map(signal.getsignal, (signal.SIGHUP, signal.SIGTERM))), flush=True); sleep_for_ever()"
    bench.write(code).start()
    until(lambda: bench.log().endswith("\n"))
    assert bench.log().count("SIG_DFL") == 2, bench.log()


def test_a_stop_that_comes_after_the_end_does_not_hide_a_failure(bench: Bench) -> None:
    bench.write("child('deaf', ignore_term); time.sleep(0.2); sys.exit(7)").start()
    bench.noted("deaf")
    until(lambda: (state := bench.state()) is not None and state.state == jobs.STOPPING)
    bench.stop(force=True)
    job = bench.wait_for(*jobs.ENDED_STATES)
    assert (job.state, job.code) == (jobs.FAILED, 7)


def test_without_its_runner_a_job_is_unsupervised_and_can_be_stopped(bench: Bench) -> None:
    bench.write(TREE + "note('main'); sleep_for_ever()").start()
    processes = bench.noted("main", "plain", "session", "daemon", "deaf")
    until(lambda: (state := bench.state()) is not None and len(state.processes) == 5)
    runner = bench.runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    until(lambda: not procfs.alive(runner))
    assert bench.job().state == jobs.UNSUPERVISED
    assert len(living(processes)) == 5
    os.kill(processes["main"].pid, signal.SIGKILL)
    assert bench.job().state == jobs.UNSUPERVISED, "what it left still lives"
    assert bench.stop().state == jobs.STOPPING
    job = bench.wait_for(jobs.STOPPED)
    assert living(processes) == []
    assert job.code is None
    seqs = [event.seq for event in bench.store.events(bench.id, 0)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_torn_records_of_a_dead_runner_still_name_what_to_end(bench: Bench) -> None:
    bench.write(TREE + "note('main'); sleep_for_ever()").start()
    processes = bench.noted("main", "plain", "session", "daemon", "deaf")
    until(lambda: (state := bench.state()) is not None and len(state.processes) == 5)
    runner = bench.runner()
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)
    until(lambda: not procfs.alive(runner))
    Path(bench.directory, records.STARTED).write_text("{")
    assert bench.job().state == jobs.UNSUPERVISED
    bench.stop(force=True)
    bench.wait_for(jobs.STOPPED)
    assert living(processes) == []


def test_a_reused_pid_is_neither_taken_for_the_job_nor_signalled(bench: Bench) -> None:
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        real = procfs.identity(innocent.pid)
        assert real is not None
        other = ProcessId(real.pid, real.start_ticks - 1, real.boot_id)
        bench.write("")
        write_record(
            os.path.join(bench.directory, records.STARTED),
            JobStarted(other, other, innocent.pid, time.time()),
            durable=False,
        )
        write_record(
            os.path.join(bench.directory, records.STATE),
            JobState(jobs.RUNNING, time.time(), processes=(other,)),
            durable=False,
        )
        assert bench.job().state == jobs.GONE
        with pytest.raises(RequestError) as refused:
            bench.stop()
        assert refused.value.code == CONFLICT
        assert not send(other, signal.SIGKILL)
        bench.start()  # even a runner that is started to end what is left ends nothing
        bench.wait_for(jobs.STOPPED)
        assert innocent.poll() is None
        assert send(real, signal.SIGKILL)
        assert innocent.wait(timeout=5) == -signal.SIGKILL
    finally:
        innocent.kill()
        innocent.wait()


def test_only_one_runner_at_a_time(bench: Bench) -> None:
    bench.write("note('main'); sleep_for_ever()").start()
    bench.noted("main")
    second = subprocess.run(
        [*bench.bundle.command, bench.directory], env={"PYTHONPATH": bench.bundle.library}, timeout=20
    )
    assert second.returncode == 3
    assert bench.job().state == jobs.RUNNING


def test_a_flood_of_log_does_not_delay_a_stop(bench: Bench) -> None:
    code = """
block = (b"x" * 99 + b"\\n") * 10000
for _ in range(100):
    os.write(1, block)
note("flooded")
sleep_for_ever()
"""
    bench.write(code).start()
    processes = bench.noted("flooded")
    state = until(bench.state)
    assert state is not None and time.time() - state.wall < 6
    begin = time.monotonic()
    bench.stop()
    until(lambda: not living(processes), 3.0)
    bench.wait_for(jobs.STOPPED)
    assert time.monotonic() - begin < 12


def test_a_runner_does_not_outlive_its_removed_directory(bench: Bench) -> None:
    bench.write("note('main'); sleep_for_ever()").start()
    main = bench.noted("main")["main"]
    runner = bench.runner()
    assert runner is not None
    shutil.rmtree(bench.directory)
    assert procfs.alive(main), "nobody asked the stage to end"
    assert send(main, signal.SIGTERM)
    until(lambda: not procfs.alive(main) and not procfs.alive(runner))


def test_a_job_without_its_directory_can_still_be_stopped(bench: Bench) -> None:
    bench.write("note('main')\nchild('child', ignore_term)\nsleep_for_ever()").start()
    processes = bench.noted("main", "child")
    runner = bench.runner()
    assert runner is not None
    shutil.rmtree(bench.directory)
    assert bench.store.list().jobs == ()
    for name in (bench.id, "check"):
        job = bench.store.find(name)
        assert (job.id, job.stage, job.state) == (bench.id, "check", jobs.RUNNING)
        assert {process.pid for process in processes.values()} <= set(job.pids) and "removed" in job.note
    assert JobStore(str(bench.workspace / "other")).stray(bench.id) is None
    with pytest.raises(RequestError, match="no job"):
        JobStore(str(bench.workspace / "other")).find(bench.id)
    with pytest.raises(RequestError, match="cannot be forced"):
        bench.stop(force=True)
    assert bench.stop().state == jobs.RUNNING
    until(lambda: not living(processes) and not procfs.alive(runner))
    assert bench.store.find(bench.id).state == jobs.GONE
    with pytest.raises(RequestError, match="already ended"):
        bench.stop()
    assert not os.path.lexists(bench.directory)


@pytest.mark.system
def test_a_full_disk_ends_neither_the_stage_nor_its_supervision(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        bench = Bench(disk)
        bench.write("note('main'); sleep_for_ever()").start()
        processes = bench.noted("main")
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(512))
        runner = bench.runner()
        assert runner is not None
        bench.stop()
        until(lambda: not living(processes))
        assert procfs.alive(runner), "it waits for room for the last record"
        filler.unlink()
        job = bench.wait_for(jobs.STOPPED)
        assert job.signal == signal.SIGTERM
        seqs = [event.seq for event in bench.store.events(bench.id, 0)]
        assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) >= 4
        until(lambda: not procfs.alive(runner))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_stage_that_writes_events_has_progress_evidence_and_a_reason(bench: Bench) -> None:
    code = """
def say(**event):
    with open(os.path.join(os.environ["JOB"], "progress.jsonl"), "a") as file:
        file.write(json.dumps({"t": 1.0, **event}) + "\\n")
import dataclasses
import json
say(event="phase", name="synthesize")
say(event="count", done=3, total=12, unit="prompts", rate=1.5)
say(event="metrics", step=7, values={"loss": 2.5})
say(event="message", level="info", text="Three answers are there.")
say(event="evidence", name="rows", value=3, unit="rows", ok=True)
open("said", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
say(event="failed", cause="The disk is almost full.", remedy="Free space.", where="/data", klass="disk_full")
print("ValueError: something else that the log holds", file=sys.stderr)
sys.exit(1)
"""
    bench.write(code, env={"JOB": bench.directory}, watcher="events").start()
    job = until(lambda: next((job for job in [bench.job()] if job.evidence), None))
    assert (job.progress.phase, job.progress.done, job.progress.total, job.progress.rate) == ("synthesize", 3, 12, 1.5)
    assert job.progress.percent == 25.0 and job.progress.figures == {"loss": 2.5, "step": 7.0}
    (bench.workspace / "go").touch()
    job = bench.wait_for(jobs.FAILED)
    assert job.failure is not None
    assert (job.failure.klass, job.failure.cause) == ("disk_full", "/data: The disk is almost full.")
    assert [(item.name, item.value, item.ok) for item in job.evidence] == [("rows", 3, True)]
    assert "message: Three answers are there." in bench.events() and "phase: synthesize" in bench.events()


RUNNER_WITH_A_LOG = """
import sys
from remote.jobs import kernelwatch, runner
kernelwatch.KMSG = {log!r}
sys.exit(runner.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("killed", [True, False])
def test_a_silent_death_names_its_signal_and_what_the_kernel_says(bench: Bench, tmp_path: Path, killed: bool) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;Out of memory: Killed process 1 (VLLM::EngineCor) of an earlier start\n")
    script = tmp_path / "runner.py"
    script.write_text(RUNNER_WITH_A_LOG.format(log=str(log)))
    bench.bundle = dataclasses.replace(bench.bundle, command=(sys.executable, str(script)))
    tell = f"open({str(log)!r}, 'a').write(f'6,2,2,-;Out of memory: Killed process {{pid}} (python3) total-vm:1kB\\n')"
    bench.write(f"pid = os.getpid() if {killed} else 1\n{tell}\nos.kill(os.getpid(), 9)").start()
    failure = bench.wait_for(jobs.FAILED).failure
    assert failure is not None and "signal 9, SIGKILL" in failure.cause
    if killed:
        assert failure.klass == "host_oom_killed" and failure.line.startswith("Out of memory: Killed process")
        assert "earlier start" not in failure.line
    else:
        assert failure.klass == "gone" and "killed none" in failure.remedy
