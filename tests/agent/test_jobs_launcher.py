"""Launching and stopping: one key one job, checks that stand in the way, and jobs that outlive who started them.

The stages are replays, through the same hook as on the embedded host: everything but the ML environment is real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from jobkit import ROOT, until

from pipeline.plan.catalog import STAGES
from remote import procfs
from remote.jobs import detaching, records
from remote.jobs.launcher import Launcher
from remote.jobs.store import JobStore
from remote.policy import Policy
from remote.protocol import jobs
from remote.protocol.errors import BAD_ARGUMENT, CONFLICT, FAILED, NOT_FOUND, REFUSED, RequestError
from remote.protocol.jobs import Job
from remote.protocol.stages import VERDICT_BLOCKED, LaunchRequest, StageContext

REPLAY = """
import http.server, json, os, sys, threading
recording, arguments = sys.argv[1], sys.argv[2:]
print(json.dumps({"arguments": arguments, "environment": dict(os.environ)}), flush=True)
if os.fork() == 0:
    os.setsid()
    threading.Event().wait()
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *ignored):
        pass
if arguments:
    http.server.HTTPServer(("127.0.0.1", int(arguments[1])), Health).serve_forever()
"""
VERIFIER = StageContext(verifier="/models/verifier")


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "replay"
    folder.mkdir()
    (folder / "replay.py").write_text(REPLAY)
    for stage in ("serve", "check"):
        (folder / f"{stage}.jsonl").touch()
    monkeypatch.setenv("EAGLE_CONSOLE_REPLAY", str(folder))
    return folder


class Host:
    def __init__(self, workspace: Path) -> None:
        workspace.mkdir()
        self.workspace = workspace
        self.store = JobStore(str(workspace))
        self.launcher = self.under(Policy(False, "", (str(workspace),), str(workspace)))

    def under(self, policy: Policy) -> Launcher:
        return Launcher(self.store, policy, None)

    def wait_for(self, name: str, *states: str) -> Job:
        job: Job = until(lambda: next((job for job in [self.store.find(name)] if job.state in states), None))
        return job


@pytest.fixture
def host(tmp_path: Path):
    host = Host(tmp_path / "workspace")
    yield host
    for job in host.store.list().jobs:
        if job.state in jobs.LIVE_STATES:
            host.launcher.stop(job.id, "the test's end", True)
            host.wait_for(job.id, *jobs.ENDED_STATES)


def serve(port: int, **more) -> LaunchRequest:
    return LaunchRequest("serve", {"port": port}, VERIFIER, "a test", **more)


def test_a_replayed_service_from_launch_to_stop(host: Host, replay: Path, unused_tcp_port: int) -> None:
    job = host.launcher.launch(serve(unused_tcp_port))
    assert job.simulated and job.pids and job.state in jobs.LIVE_STATES
    host.wait_for("serve", jobs.READY)
    host.launcher.stop("serve", "a test", False)
    job = host.wait_for("serve", jobs.STOPPED)
    with pytest.raises(RequestError) as refused:
        host.launcher.stop("serve", "a test", False)
    assert refused.value.code == CONFLICT and job.id in refused.value.message


def test_what_a_stage_inherits(host: Host, replay: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/fake/nvml")
    monkeypatch.setenv("EAGLE_CONSOLE_SIMULATE_GPUS", "1")
    job = host.launcher.launch(serve(unused_tcp_port))
    line = until(lambda: host.store.read_log(job.id, offset=0).lines)[0]
    told = json.loads(line)
    assert told["arguments"] == ["--port", str(unused_tcp_port)]
    assert told["environment"]["HF_TOKEN"] == "hf_secret"
    assert told["environment"]["LD_LIBRARY_PATH"] == "/fake/nvml"
    assert not [name for name in told["environment"] if name.startswith("EAGLE_CONSOLE_")]
    for file in Path(host.store.directory(job.id)).glob("*.json"):
        assert "hf_secret" not in file.read_text()


def test_a_stage_finds_its_packages_and_a_folder_of_the_workspace_does_not_hide_them(host: Host) -> None:
    (host.workspace / "pipeline").mkdir()
    (host.workspace / "pipeline" / "__init__.py").write_text("raise SystemExit('the wrong pipeline')")
    job = host.launcher.launch(LaunchRequest("check", context=StageContext(python=sys.executable)))
    job = host.wait_for(job.id, jobs.FAILED)
    log = "\n".join(host.store.read_log(job.id, offset=0).lines)
    assert "wrong pipeline" not in log and f"python {sys.version.split()[0]}" in log
    assert "not usable: torch, transformers, vllm, speculators" in log
    assert job.code == 1


def test_one_key_is_one_job(host: Host, replay: Path, unused_tcp_port: int) -> None:
    launched = []

    def launch() -> None:
        launcher = Launcher(JobStore(str(host.workspace)), Policy(False, "", (), str(host.workspace)), None)
        launched.append(launcher.launch(serve(unused_tcp_port), "the key").id)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(launched) == 4 and len(set(launched)) == 1
    assert len(host.store.list().jobs) == 1
    assert host.launcher.launch(serve(unused_tcp_port), "the key").id == launched[0]


def test_a_port_in_use_stands_in_the_way(host: Host, replay: Path, unused_tcp_port: int) -> None:
    first = host.launcher.launch(serve(unused_tcp_port))
    with pytest.raises(RequestError) as refused:
        host.launcher.launch(serve(unused_tcp_port))
    assert refused.value.code == REFUSED and first.id in refused.value.message
    assert "--force port" in refused.value.remedy
    second = host.launcher.launch(serve(unused_tcp_port, force=("port",)))
    assert second.id != first.id
    warnings = [event.text for event in host.store.events(second.id, 0) if event.kind == jobs.EVENT_WARNING]
    assert warnings == ["Started in spite of the check port."]
    job = host.wait_for(second.id, jobs.FAILED)
    assert job.code == 1
    assert host.store.find(first.id).state in (jobs.RUNNING, jobs.READY)


def test_another_servers_answer_does_not_make_a_job_ready(host: Host, replay: Path, unused_tcp_port: int) -> None:
    host.launcher.launch(serve(unused_tcp_port))
    host.wait_for("serve", jobs.READY)
    (replay / "replay.py").write_text("import time; time.sleep(60)")
    second = host.launcher.launch(serve(unused_tcp_port, force=("port",)))
    until(lambda: any("another process" in event.text for event in host.store.events(second.id, 0)))
    assert host.store.find(second.id).state == jobs.RUNNING


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (LaunchRequest("serv"), NOT_FOUND, "did you mean 'serve'"),
        (LaunchRequest("serve", {"prot": 1}), BAD_ARGUMENT, "did you mean 'port'"),
        (LaunchRequest("serve", {"port": "99999"}), BAD_ARGUMENT, "at most 65535"),
        (LaunchRequest("serve", {"extra": "--x 'open"}), BAD_ARGUMENT, "quotation"),
        (LaunchRequest("serve"), REFUSED, "python"),
        (LaunchRequest("check", context=StageContext(python="/nowhere/python")), REFUSED, "/nowhere/python"),
        (LaunchRequest("check", force=("prot",)), BAD_ARGUMENT, "there is no check 'prot'"),
    ],
)
def test_launches_that_are_refused_leave_no_trace(host: Host, request_: LaunchRequest, code: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        host.launcher.launch(request_)
    assert refused.value.code == code and words in refused.value.message
    assert list(host.workspace.iterdir()) == []


def test_a_read_only_connection_changes_nothing(host: Host, replay: Path, unused_tcp_port: int) -> None:
    host.launcher.launch(serve(unused_tcp_port))
    readonly = host.under(Policy(True, "the console asked for it", (), str(host.workspace)))
    plan = readonly.plan(serve(unused_tcp_port))
    assert plan.verdict == VERDICT_BLOCKED and plan.checks[0].rule == "read_only"
    for change in (
        lambda: readonly.launch(LaunchRequest("check", force=("read_only",))),
        lambda: readonly.stop("serve", "x", False),
    ):
        with pytest.raises(RequestError) as refused:
            change()
        assert refused.value.code == REFUSED and "read-only" in refused.value.message
    assert len(host.store.list().jobs) == 1 and host.store.find("serve").state != jobs.STOPPING


def test_a_dry_run_needs_nothing(tmp_path: Path, unused_tcp_port: int) -> None:
    launcher = Launcher(JobStore(str(tmp_path / "none")), Policy(False, "", (), str(tmp_path / "none")), None)
    request = LaunchRequest("serve", {"port": unused_tcp_port}, StageContext("/models/x", "/ml/bin/python", 8))
    plan = launcher.plan(request)
    words = f"/ml/bin/vllm serve /models/x --host 127.0.0.1 --port {unused_tcp_port} --tensor-parallel-size 8"
    assert words in plan.command_line
    blocked = {check.rule for check in plan.checks if check.verdict == VERDICT_BLOCKED}
    assert blocked == {"workspace", "python", "verifier"}
    assert all(check.remedy for check in plan.checks if check.verdict == VERDICT_BLOCKED)
    with pytest.raises(RequestError) as refused:
        launcher.launch(replace(request, force=("workspace", "python", "verifier")))
    assert refused.value.code == REFUSED and not (tmp_path / "none").exists()


def test_the_catalogue_with_the_profiles_values(host: Host, replay: Path) -> None:
    stages = {stage.name: stage for stage in host.launcher.stages(VERIFIER).stages}
    assert set(stages) == {stage.name for stage in STAGES}
    blocked = {check.rule for check in stages["serve"].checks if check.verdict == VERDICT_BLOCKED}
    assert stages["serve"].simulated and blocked <= {"port"}, "only the default port may be taken on this machine"
    values = {parameter.name: parameter.default for parameter in stages["serve"].parameters}
    assert values["verifier"] == "/models/verifier" and values["port"] == 8000


def test_a_runner_that_cannot_run_is_recorded_and_told(
    host: Host, replay: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (sys.executable, "-c", "raise SystemExit('no such bundle')")
    bundle = detaching.Bundle(ROOT, ROOT, broken, {})
    monkeypatch.setattr(host.launcher, "_bundle", bundle)
    with pytest.raises(RequestError) as failed:
        host.launcher.launch(serve(unused_tcp_port))
    assert failed.value.code == FAILED and "no such bundle" in failed.value.message
    job = host.store.find("serve")
    assert job.state == jobs.FAILED and job.failure is not None and "no such bundle" in job.failure.cause


def test_a_job_outlives_who_launched_it(host: Host, replay: Path, unused_tcp_port: int) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {ROOT!r})
from remote.jobs.launcher import Launcher
from remote.jobs.store import JobStore
from remote.policy import Policy
from remote.protocol.stages import LaunchRequest, StageContext
workspace = {str(host.workspace)!r}
launcher = Launcher(JobStore(workspace), Policy(False, "", (), workspace), None)
print(launcher.launch(LaunchRequest("serve", {{"port": {unused_tcp_port}}}, StageContext("/m"))).id, flush=True)
time.sleep(60)
"""
    agent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, text=True)
    assert agent.stdout is not None
    job_id = agent.stdout.readline().strip()
    os.killpg(agent.pid, signal.SIGHUP)
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    assert agent.stdout.read() == "", "nothing of the job holds the agent's output open"
    agent.stdout.close()
    host.wait_for(job_id, jobs.READY)
    runner = records.read_record(os.path.join(host.store.directory(job_id), records.LOCK), jobs.ProcessId)
    assert runner is not None and procfs.alive(runner)
    assert os.readlink(f"/proc/{runner.pid}/cwd") == "/"
    opened = [os.readlink(f"/proc/{runner.pid}/fd/{name}") for name in ("0", "1")]
    assert opened == ["/dev/null", "/dev/null"]


INTERPRETERS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))


@pytest.mark.system
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_on_other_pythons(tmp_path: Path, replay: Path, unused_tcp_port: int, version: str) -> None:
    found = [path for path in INTERPRETERS if path.parents[1].name.startswith(f"{version}.")]
    if not found:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no CPython {version}")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    scenario = Path(__file__).with_name("jobs_scenario.py")
    done = subprocess.run(
        [found[0], "-W", "error", "-I", scenario, workspace, replay, str(unused_tcp_port)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert ".".join(map(str, seen["python"])) == version
    assert seen["again"] and seen["simulated"]
    assert seen["states"][-1] == "stopped" and "ready" in seen["states"]
    assert seen["living"] == [] and seen["stop_again"] == "conflict"
