"""Programs that were started by hand are found, watched and left alone; and stopped only by their name."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adopting import WRITABLE, ByHand, record_of, wait_for
from jobkit import Bench, living, until

from remote import procfs
from remote.adopt import adoption as adoption_module
from remote.adopt import stopping
from remote.adopt.adoption import Adoption
from remote.adopt.outputs import output_of
from remote.policy import Policy
from remote.protocol import adopted, jobs
from remote.protocol.errors import BAD_ARGUMENT, CONFLICT, NOT_FOUND, REFUSED, RequestError

LOG = (
    "INFO 11-30 10:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 11-30 10:00:02 [core.py:1] Starting to load model /models/tiny-model...",
    "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]",
)

Make = Callable[..., ByHand]


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[Make]:
    started: list[ByHand] = []

    def make(name: str = "one", **words: object) -> ByHand:
        program = ByHand(tmp_path / name, **words)  # type: ignore[arg-type]
        started.append(program)
        return program

    yield make
    for program in started:
        if hasattr(program, "main"):
            program.end()


@pytest.fixture
def adoption(monkeypatch: pytest.MonkeyPatch) -> Adoption:
    monkeypatch.setattr(adoption_module, "SCAN_SECONDS", 0.1)
    return Adoption(WRITABLE, lambda: ())


def test_a_server_is_found_while_it_loads_and_watched_until_it_is_ready(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand(redirect="> serve.log 2>&1").start(("VLLM::EngineCore", "VLLM::Worker_TP0"), LOG)
    loading = wait_for(adoption, server.id, lambda record: record.progress.done == 1)
    assert (loading.kind, loading.state, loading.name) == (adopted.KIND_SERVER, jobs.RUNNING, "tiny-model")
    assert loading.main == server.main
    assert set(loading.processes) == {server.main, *server.engines}
    assert loading.model == "/models/tiny-model" and loading.port is None
    assert loading.healthy is False and loading.health_note == "it does not listen yet"
    assert loading.log == str(server.folder / "serve.log") and loading.log_note == "its standard output"
    assert (loading.progress.phase, loading.progress.total, loading.progress.unit) == ("weights", 4, "shards")
    assert loading.cwd == str(server.folder)
    assert loading.started is not None and abs(loading.started - time.time()) < 30
    assert loading.own and loading.user

    server.become_ready()
    ready = wait_for(adoption, server.id, lambda record: record.serving is not None)
    assert ready.state == jobs.READY and ready.healthy and ready.progress.ready
    assert ready.port == server.port
    assert ready.serving is not None and (ready.serving.running, ready.serving.kv_cache) == (2.0, 0.25)
    assert living({"main": server.main, "engine": server.engines[0]}) == ["engine", "main"], "it was left alone"


def test_its_end_is_seen_and_nothing_is_made_up_about_it(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand(redirect="> serve.log 2>&1").start()
    wait_for(adoption, server.id, lambda record: record.state == jobs.RUNNING)
    server.end()
    gone = wait_for(adoption, server.id, lambda record: record.state == jobs.GONE)
    assert gone.failure is None, "the log gives no reason and only the parent has the exit code"


def test_the_cause_in_its_log_is_told(by_hand: Make, adoption: Adoption) -> None:
    cause = "ERROR 11-30 10:00:03 [core.py:1] OSError: [Errno 98] Address already in use"
    server = by_hand(redirect="> serve.log 2>&1").start(log=(*LOG, cause))
    record = wait_for(adoption, server.id, lambda record: record.failure is not None)
    assert record.failure is not None and "in use" in record.failure.line


def test_an_orphaned_engine_is_one_record_of_its_own(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand().start(("VLLM::EngineCore", "VLLM::Worker_TP0"))
    wait_for(adoption, server.id, lambda record: len(record.processes) == 3)
    os.kill(server.main.pid, signal.SIGKILL)
    orphan = wait_for(adoption, f"adopted-{server.engines[0].pid}", lambda record: record.kind == adopted.KIND_ORPHAN)
    assert set(orphan.processes) == set(server.engines)
    assert orphan.name == "orphaned-engine" and orphan.healthy is None
    assert record_of(adoption, f"adopted-{server.engines[1].pid}") is None


def test_an_engine_inside_another_program_is_not_called_an_orphan(
    by_hand: Make, adoption: Adoption, tmp_path: Path
) -> None:
    program = by_hand(name="offline", words=["generate"]).start(("VLLM::EngineCore",))
    record = wait_for(adoption, program.id, lambda record: bool(record.processes))
    assert record.kind == adopted.KIND_ENGINE
    assert set(record.processes) == {program.main, *program.engines}


def test_two_servers_keep_their_engines_apart(by_hand: Make, adoption: Adoption) -> None:
    first = by_hand("first").start(("VLLM::EngineCore",))
    second = by_hand("second").start(("VLLM::EngineCore",))
    for server in (first, second):
        record = wait_for(adoption, server.id, lambda record: len(record.processes) == 2)
        assert set(record.processes) == {server.main, *server.engines}


def test_training_under_a_launcher_is_one_run(by_hand: Make, adoption: Adoption) -> None:
    words = ["train", "--save-path", "out_1k", "--verifier-name-or-path", "/models/tiny-model"]
    run = by_hand()
    run.program = run.folder / "speculators"
    shutil.copy(run.folder / "vllm", run.program)
    run.words = words
    lines = [line.partition("\t")[2] for line in (Path(__file__).parents[1] / "fixtures" / "speculators_train.log")
             .read_text().split("\n")][:400]  # fmt: skip
    run._redirect = "> train.log 2>&1"
    run.start(log=tuple(lines))
    record = wait_for(adoption, run.id, lambda record: record.training is not None and record.training.step)
    assert (record.kind, record.name) == (adopted.KIND_TRAINING, "out_1k")
    assert record.output == str(run.folder / "out_1k")
    assert record.training is not None and record.training.epochs == 3
    assert record.training.steps_per_second is None, "nobody saw when the old lines were written"
    before = record.training.step
    assert before is not None
    for number in range(3):
        with open(run.folder / "train.log", "a") as log:
            log.write(
                f"[10:00:0{number}] INFO     train/loss=2.5, epoch=1, global_step={before + number}    trainer.py:1\n"
            )
        wait_for(adoption, run.id, lambda record, n=number: record.training.step == before + n + 1)  # type: ignore[misc]
    rate = wait_for(adoption, run.id, lambda record: record.training.steps_per_second).training
    assert rate is not None and 0.1 < (rate.steps_per_second or 0) < 30


def test_processes_of_our_own_jobs_are_not_adopted(tmp_path: Path, adoption: Adoption, by_hand: Make) -> None:
    bench = Bench(tmp_path / "workspace")
    code = """
import subprocess
subprocess.Popen(["VLLM::EngineCore", "-c", "import time; time.sleep(60)"], executable=sys.executable)
child("engine")
sleep_for_ever()
"""
    bench.write(code).start()
    try:
        runner = until(bench.runner)
        engine = until(lambda: [p.pid for p in procfs.descendants([runner.pid]) if _title(p.pid) == "VLLM::EngineCore"])
        ours = Adoption(WRITABLE, lambda: {runner})
        assert not [r for r in ours.list().records if engine[0] in [p.pid for p in r.processes]]
        others = adoption.list().records
        assert [r for r in others if engine[0] in [p.pid for p in r.processes]], "without that it would be"
    finally:
        bench.stop(force=True)
        bench.wait_for(*jobs.ENDED_STATES)


def test_where_the_output_goes(by_hand: Make, tmp_path: Path) -> None:
    through = by_hand("tee", redirect="2>&1 | tee -a both.log > /dev/null").start(log=LOG)
    output = output_of(through.main.pid)
    assert (output.path, output.note) == (str(through.folder / "both.log"), "written by tee")
    chain = by_hand("chain", redirect="2>&1 | cat | tee both.log > /dev/null").start(log=LOG)
    assert output_of(chain.main.pid).path == str(chain.folder / "both.log")
    away = by_hand("away", redirect="> /dev/null 2>&1").start()
    assert output_of(away.main.pid) == dataclasses.replace(output_of(away.main.pid), path=None)
    assert "thrown away" in output_of(away.main.pid).note
    apart = by_hand("apart", redirect="> out.log 2> err.log").start()
    output = output_of(apart.main.pid)
    assert output.path == str(apart.folder / "out.log") and "err.log" in output.note
    deleted = by_hand("deleted", redirect="> gone.log 2>&1").start()
    (deleted.folder / "gone.log").unlink()
    assert output_of(deleted.main.pid).path is None


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_program_in_tmux_has_no_log_and_that_is_said(by_hand: Make, adoption: Adoption, tmp_path: Path) -> None:
    server = by_hand()
    environment = {"FAKE_NOTE": str(server.folder / "note.json"), "FAKE_READY_FILE": str(server.ready_file)}
    tmux = ["tmux", "-S", str(tmp_path / "socket")]
    subprocess.run(
        [*tmux, "-f", "/dev/null", "new-session", "-d", sys.executable, str(server.program), *server.words],
        env={**os.environ, **environment, "TERM": "xterm"}, cwd=server.folder, check=True,
    )  # fmt: skip
    try:
        noted = until(
            lambda: (server.folder / "note.json").exists() and json.loads((server.folder / "note.json").read_text())
        )
        server.main = procfs.identity(noted["main"])  # type: ignore[assignment]
        record = wait_for(adoption, server.id, lambda record: record.log_note)
        assert record.log is None and "tmux" in record.log_note
        server.become_ready()
        wait_for(adoption, server.id, lambda record: record.state == jobs.READY)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def test_secrets_of_a_command_line_are_hidden(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand()
    server.words += ["--api-key", "very-secret-word"]
    server.start()
    record = wait_for(adoption, server.id, lambda record: record.command_line)
    assert "very-secret-word" not in repr(adoption.list())
    assert record.command_line is not None and "--api-key <hidden>" in record.command_line


def test_another_server_on_the_port_does_not_answer_for_it(by_hand: Make, adoption: Adoption) -> None:
    real = by_hand("real").start()
    real.become_ready()
    wait_for(adoption, real.id, lambda record: record.state == jobs.READY)
    other = by_hand("other", words=["serve", "/models/other", "--port", str(real.port)])
    other.start()
    record = wait_for(adoption, other.id, lambda record: record.healthy is not None)
    assert record.healthy is False and record.port is None and record.state == jobs.RUNNING


def test_another_users_process_is_shown_as_far_as_it_can_be(by_hand: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    server = by_hand(redirect="> serve.log 2>&1").start()
    monkeypatch.setattr(adoption_module.os, "geteuid", lambda: 12345)
    adoption = Adoption(WRITABLE, lambda: ())
    record = wait_for(adoption, server.id, lambda record: record.user)
    assert not record.own
    monkeypatch.setattr(stopping.os, "geteuid", lambda: 12345)
    with pytest.raises(RequestError) as refused:
        adoption.stop(server.main.pid, server.main.start_ticks, "tiny-model", "a test")
    assert refused.value.code == REFUSED and "belongs to" in refused.value.message
    assert procfs.alive(server.main)


# Stopping


def test_it_is_stopped_only_with_its_name(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand().start(("VLLM::EngineCore", "VLLM::Worker_TP0"))
    bystander = by_hand("bystander").start()
    wait_for(adoption, server.id, lambda record: len(record.processes) == 3)
    pid, ticks = server.main.pid, server.main.start_ticks
    for typed in ("", "tiny", "TINY-MODEL", server.id, "yes"):
        with pytest.raises(RequestError) as refused:
            adoption.stop(pid, ticks, typed, "a test")
        assert refused.value.code == REFUSED and "tiny-model" in refused.value.remedy
    assert procfs.alive(server.main)

    assert adoption.stop(pid, ticks, "tiny-model", "a test").state == jobs.STOPPING
    stopped = wait_for(adoption, server.id, lambda record: record.state == jobs.STOPPED)
    assert living({"main": server.main, "engine": server.engines[0], "worker": server.engines[1]}) == []
    assert stopped.processes == () and "SIGTERM" in stopped.note and "a test" in stopped.note
    assert procfs.alive(bystander.main)
    assert record_of(adoption, f"adopted-{server.engines[0].pid}") is None, "what it left was not called an orphan"


def test_one_that_ignores_sigterm_is_killed_after_its_grace(
    by_hand: Make, adoption: Adoption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr("remote.jobs.ending.TERM_SECONDS", 0.5)
    server = by_hand().start(("VLLM::EngineCore",), FAKE_IGNORE_TERM="1")
    wait_for(adoption, server.id, lambda record: len(record.processes) == 2)
    adoption.stop(server.main.pid, server.main.start_ticks, "tiny-model", "a test")
    stopped = wait_for(adoption, server.id, lambda record: record.state == jobs.STOPPED)
    assert "SIGKILL" in stopped.note and not procfs.alive(server.main) and not procfs.alive(server.engines[0])


def test_a_reused_pid_is_never_signalled(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand().start()
    wait_for(adoption, server.id, lambda record: record.processes)
    with pytest.raises(RequestError) as refused:
        adoption.stop(server.main.pid, server.main.start_ticks - 1, "tiny-model", "a test")
    assert refused.value.code == CONFLICT and procfs.alive(server.main)


def test_a_readonly_connection_stops_nothing(by_hand: Make) -> None:
    server = by_hand().start()
    adoption = Adoption(Policy(True, "the console asked for it", (), None), lambda: ())
    wait_for(adoption, server.id, lambda record: record.processes)
    with pytest.raises(RequestError) as refused:
        adoption.stop(server.main.pid, server.main.start_ticks, "tiny-model", "a test")
    assert refused.value.code == REFUSED and procfs.alive(server.main)


# Asked for


def test_a_log_is_watched_without_a_process(adoption: Adoption, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(LOG) + "\n")
    record = adoption.adopt(str(log), None)
    assert record.kind == adopted.KIND_SERVER and record.main is None and record.watched
    assert (record.progress.phase, record.progress.done) == ("weights", 1)
    assert record.progress.phases == (), "when its old lines were written is not known"
    with open(log, "a") as file:
        file.write("INFO 11-30 10:00:09 [x.py:1] Model loading took 1.5 GiB memory and 2.1 seconds\n")
    later = wait_for(adoption, record.id, lambda record: record.progress.phase == "post-load")
    assert [phase.name for phase in later.progress.phases] == ["post-load"]
    assert adoption.adopt(str(log), None).id == record.id
    with pytest.raises(RequestError) as refused:
        adoption.stop(0, 0, record.name, "a test")
    assert refused.value.code == NOT_FOUND


def test_a_named_log_finds_the_program_that_writes_it(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand(redirect="> serve.log 2>&1").start(log=LOG)
    record = adoption.adopt(str(server.folder / "serve.log"), None)
    assert record.id == server.id and record.main == server.main and record.watched
    link = server.folder / "latest.log"
    link.symlink_to("serve.log")
    assert adoption.adopt(str(link), None).id == server.id
    server.end()
    assert until(lambda: adoption.adopt(str(link), None).state == jobs.GONE)


def test_a_log_can_be_named_for_a_process_that_shows_none(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand(redirect="> /dev/null 2>&1").start()
    log = server.folder / "elsewhere.log"
    log.write_text("\n".join(LOG) + "\n")
    wait_for(adoption, server.id, lambda record: record.log is None)
    record = adoption.adopt(str(log), server.main.pid)
    assert (record.id, record.log, record.kind) == (server.id, str(log), adopted.KIND_SERVER)
    assert wait_for(adoption, server.id, lambda record: record.progress.done).progress.total == 4


def test_what_cannot_be_watched_is_refused_in_words(adoption: Adoption, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for log, pid, code in (
        (None, None, BAD_ARGUMENT),
        ("relative.log", None, BAD_ARGUMENT),
        (str(tmp_path / "none.log"), None, NOT_FOUND),
        (str(tmp_path), None, "failed"),
        (str(fifo), None, "failed"),
        (None, 2**22 + 1, NOT_FOUND),
    ):
        with pytest.raises(RequestError) as refused:
            adoption.adopt(log, pid)
        assert refused.value.code == code, (log, pid)


def test_its_log_is_read_like_a_jobs(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand(redirect="> serve.log 2>&1").start(log=LOG)
    wait_for(adoption, server.id, lambda record: record.log)
    assert adoption.read_log(server.id, None, 2, 4096).lines == LOG[1:]
    assert adoption.read_log(server.id, 0, None, 4096).lines == LOG
    silent = by_hand("silent", redirect="> /dev/null 2>&1").start()
    wait_for(adoption, silent.id, lambda record: record.log_note)
    with pytest.raises(RequestError) as refused:
        adoption.read_log(silent.id, 0, None, 4096)
    assert refused.value.code == NOT_FOUND and "thrown away" in refused.value.message


def _title(pid: int) -> str:
    return (procfs.command_line(pid) or "").partition(" ")[0]


def test_a_server_with_tls_or_in_a_container_is_not_asked(by_hand: Make, adoption: Adoption) -> None:
    server = by_hand()
    server.words += ["--ssl-certfile", "cert.pem"]
    server.start()
    server.become_ready()
    record = wait_for(adoption, server.id, lambda record: record.port is not None)
    assert record.port == server.port and record.healthy is None and "TLS" in record.health_note
    assert record.state == jobs.RUNNING and not record.progress.ready, "nobody knows whether it is ready"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs the right to make a network namespace"
)
def test_a_server_in_its_own_network_is_not_asked(by_hand: Make, adoption: Adoption) -> None:
    outside = by_hand("outside").start()
    outside.become_ready()
    inside = by_hand("inside", words=["serve", "/models/inside", "--port", str(outside.port)])
    if subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        pytest.skip("a network namespace cannot be made here")
    inside.start(through=("unshare", "-n"))
    inside.become_ready()
    record = wait_for(adoption, inside.id, lambda record: record.health_note)
    assert record.healthy is None and record.port is None and "container" in record.health_note
