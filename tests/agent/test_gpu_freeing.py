"""Freeing GPUs: a real agent with fake NVML, and real processes that hold a device open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adopting import ByHand
from agent_process import AgentProcess
from fixtures.nvml import FakeNvml
from jobkit import Bench, until

from remote import procfs
from remote.protocol.jobs import ProcessId

pytestmark = pytest.mark.system

NOBODY = 65534
HOLD = """
import os, sys, time
device = os.open(sys.argv[1], os.O_RDONLY)
if len(sys.argv) > 2 and os.fork() == 0:
    os.setsid()
    time.sleep(600)
print("holds", flush=True)
time.sleep(600)
"""


class Driver:
    """The fake driver's memory: 1 GiB for each holder that lives, and what stays without a process."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml
        self._holders: list[ProcessId] = []
        self._ended = threading.Event()
        self.stays = 0
        self.hidden: list[int] = []
        self._write()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def hold(self, pid: int) -> ProcessId:
        process = procfs.identity(pid)
        assert process is not None
        self._holders.append(process)
        self._write()
        return process

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for process in self._holders:
            if procfs.alive(process):
                os.kill(process.pid, signal.SIGKILL)

    def _follow(self) -> None:
        while not self._ended.wait(0.05):
            self._write()

    def _write(self) -> None:
        pids = [process.pid for process in self._holders if procfs.alive(process)] + self.hidden
        used = 1024 * len(pids) + self.stays
        self._nvml.write(f"gpu 0 name=NVIDIA_H200 used={used} reserved=615", *(f"proc 0 {pid} 1024" for pid in pids))


@pytest.fixture
def device(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    (folder / "nvidia0").touch()
    tmp_path.chmod(0o755)
    return folder / "nvidia0"


@pytest.fixture
def driver(fake_nvml: FakeNvml) -> Iterator[Driver]:
    driver = Driver(fake_nvml)
    yield driver
    driver.close()


@pytest.fixture
def agent(fake_nvml: FakeNvml, device: Path, tmp_path: Path, driver: Driver) -> Iterator[AgentProcess]:
    (tmp_path / "workspace").mkdir()
    variables = {**fake_nvml.environment, "EAGLE_CONSOLE_GPU_DEVICES": str(device.parent)}
    with AgentProcess(**variables) as agent:
        agent.hello(tmp_path / "workspace")
        yield agent


@contextmanager
def holder(device: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", HOLD, str(device), *more]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"holds\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def listed(agent: AgentProcess) -> dict[int, dict[str, Any]]:
    return {item["pid"]: item for item in agent.request("gpu_holders")["ok"]["holders"]}


def seen(agent: AgentProcess, *pids: int) -> dict[int, dict[str, Any]]:
    """The holders, once NVML shows these pids."""
    found: dict[int, dict[str, Any]] = until(lambda: (now := listed(agent)).keys() >= set(pids) and now)
    return found


def free(agent: AgentProcess, *processes: ProcessId, force: tuple[str, ...] = ()) -> dict[str, Any]:
    targets = [{"pid": process.pid, "start_ticks": process.start_ticks} for process in processes]
    answer = agent.request("free_gpus", targets=targets, force=list(force), requested_by="a test")
    report: dict[str, Any] = answer["ok"]
    deadline = time.monotonic() + 60
    while report["running"] and time.monotonic() < deadline:
        time.sleep(0.1)
        report = agent.request("free_report", id=report["id"])["ok"]
    assert not report["running"] and not report["problem"]
    return report


def outcomes(report: dict[str, Any]) -> dict[int, str]:
    return {item["pid"]: item["outcome"] for item in report["processes"]}


def test_the_orphans_of_a_dead_server_are_named_and_ended(
    agent: AgentProcess, driver: Driver, device: Path, tmp_path: Path
) -> None:
    server = ByHand(tmp_path / "by-hand").start(
        engines=("VLLM::EngineCore", "VLLM::Worker_TP0"), FAKE_DEVICE=str(device)
    )
    try:
        engine, worker = (driver.hold(process.pid) for process in server.engines)
        os.kill(server.main.pid, signal.SIGKILL)
        until(lambda: not procfs.alive(server.main))
        found = until(
            lambda: (now := listed(agent)).keys() >= {engine.pid, worker.pid} and now[engine.pid]["orphan"] and now
        )
        assert all(found[process.pid]["orphan"] and not found[process.pid]["refused"] for process in (engine, worker))
        report = free(agent, engine, worker)
    finally:
        server.end()
    assert set(outcomes(report).values()) <= {"ended", "killed"}
    assert not procfs.alive(engine) and not procfs.alive(worker)
    (gpu,) = report["gpus"]
    assert (gpu["before"], gpu["after"], gpu["free"]) == (2 * 2**30, 0, True)
    (entry,) = agent.request("journal")["ok"]["entries"]
    assert entry["action"] == "gpus free" and str(engine.pid) in entry["text"] and entry["bytes"] == 2 * 2**30


def test_what_descends_from_a_holder_ends_with_it_even_in_a_session_of_its_own(
    agent: AgentProcess, driver: Driver, device: Path
) -> None:
    with holder(device, "fork") as process:
        held = driver.hold(process.pid)
        (child,) = until(lambda: procfs.descendants([process.pid]))
        seen(agent, process.pid)
        report = free(agent, held)
        assert process.wait(5) == -signal.SIGTERM
    assert outcomes(report)[held.pid] in ("ended", "killed")
    until(lambda: (now := procfs.stat(child.pid)) is None or now.zombie)


def test_a_running_job_is_left_alone_until_it_is_named_and_then_stops_as_a_job(
    agent: AgentProcess, driver: Driver, device: Path, tmp_path: Path
) -> None:
    job = Bench(tmp_path / "workspace").write(f"os.open({str(device)!r}, os.O_RDONLY)\nsleep_for_ever()").start()
    started = job.wait_for("running")
    held = driver.hold(started.pids[0])
    found = until(lambda: (now := listed(agent)).get(held.pid, {}).get("job") and now)
    assert found[held.pid]["refused"] and found[held.pid]["force"] == job.id
    assert outcomes(free(agent, held)) == {held.pid: "refused"}
    assert procfs.alive(held)
    report = free(agent, held, force=(job.id,))
    assert outcomes(report) == {held.pid: "ended"}
    assert job.wait_for("stopped").state == "stopped", "its own runner ended it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a process of another user")
def test_another_users_process_is_left_alone_until_the_user_is_named(
    agent: AgentProcess, driver: Driver, device: Path
) -> None:
    with open(device) as opened:
        argv = ["sleep", "600"]
        process = subprocess.Popen(argv, user=NOBODY, pass_fds=[opened.fileno()], start_new_session=True)
    held = driver.hold(process.pid)
    found = seen(agent, process.pid)
    assert found[held.pid]["force"] == "nobody"
    assert outcomes(free(agent, held)) == {held.pid: "refused"} and procfs.alive(held)
    assert outcomes(free(agent, held, force=("nobody",))) == {held.pid: "ended"}
    assert process.wait(5) == -signal.SIGTERM


def test_a_pid_that_has_become_another_process_is_not_touched(
    agent: AgentProcess, driver: Driver, device: Path
) -> None:
    with holder(device) as process:
        held = driver.hold(process.pid)
        seen(agent, process.pid)
        earlier = ProcessId(held.pid, held.start_ticks - 1, held.boot_id)
        assert outcomes(free(agent, earlier)) == {held.pid: "gone"}
        assert procfs.alive(held)


def test_a_pid_of_another_namespace_is_not_taken_for_the_local_process_of_that_number(
    agent: AgentProcess, driver: Driver, tmp_path: Path
) -> None:
    innocent = tmp_path / "no-device"
    innocent.touch()
    with holder(innocent) as process:
        held = driver.hold(process.pid)
        assert "no GPU device open" in seen(agent, process.pid)[held.pid]["refused"]
        assert outcomes(free(agent, held)) == {held.pid: "refused"} and procfs.alive(held)


def test_memory_that_stays_is_explained(agent: AgentProcess, driver: Driver, device: Path) -> None:
    with holder(device) as process:
        held = driver.hold(process.pid)
        driver.hidden = [2**22 - 5]
        seen(agent, process.pid, 2**22 - 5)
        report = free(agent, held)
    (gpu,) = report["gpus"]
    assert outcomes(report) == {held.pid: "ended"}
    assert not gpu["free"] and gpu["after"] == 2**30 and "cannot be seen here" in gpu["explanation"]


def test_a_read_only_console_ends_nothing(fake_nvml: FakeNvml, driver: Driver, device: Path, tmp_path: Path) -> None:
    with holder(device) as process, AgentProcess(**fake_nvml.environment) as agent:
        agent.hello(tmp_path, readonly=True)
        held = driver.hold(process.pid)
        answer = agent.request("free_gpus", targets=[{"pid": held.pid, "start_ticks": held.start_ticks}])
        assert answer["error"]["code"] == "refused" and procfs.alive(held)
