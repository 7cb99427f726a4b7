"""The GPU sampler in a real process, reading fake GPUs through the real NVML binding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fixtures.interpreters import AGENT_VERSIONS, interpreter, vendor
from fixtures.nvml import FakeNvml, build_library, gpus

from remote.protocol.codec import from_wire
from remote.protocol.disk import DiskSnapshot
from remote.protocol.gpu import Gpu, GpuProblem, GpuSnapshot
from remote.protocol.host import HostSample

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "fixtures" / "telemetry_process.py"
MIB = 2**20
INTERVAL = 0.2
RETRY = 0.3


@dataclass(frozen=True)
class Answer:
    now: float
    gpus: GpuSnapshot
    host: HostSample
    disk: DiskSnapshot
    raw: dict[str, Any]

    def age(self, index: int) -> float:
        return self.now - self.gpus.gpus[index].mono


class TelemetryProcess:
    def __init__(self, environment: dict[str, str], workspace: Path, python: Path, path: str) -> None:
        self._process = subprocess.Popen(
            [str(python), str(SCRIPT), str(workspace), str(INTERVAL), str(RETRY)],
            env={"PATH": os.defpath, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self) -> Answer:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        raw = json.loads(self._process.stdout.readline())
        return Answer(
            raw["now"],
            from_wire(GpuSnapshot, raw["gpus"]),
            from_wire(HostSample, raw["host"]),
            from_wire(DiskSnapshot, raw["disk"]),
            raw,
        )

    def until(self, holds: Callable[[Answer], bool], timeout: float = 15) -> Answer:
        deadline = time.monotonic() + timeout
        while True:
            answer = self.ask()
            if holds(answer):
                return answer
            assert time.monotonic() < deadline, answer.raw["gpus"]
            time.sleep(0.05)

    def end(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            assert self._process.wait(5) == 0, "a hanging call must not keep the process from ending"
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


Start = Callable[..., TelemetryProcess]


@pytest.fixture
def start(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Start]:
    processes = []

    def begin(
        python: Path = Path(sys.executable), path: str = str(ROOT), workspace: Path = tmp_path, **environment: str
    ) -> TelemetryProcess:
        process = TelemetryProcess({**fake_nvml.environment, **environment}, workspace, python, path)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.end()


def problem(gpu: Gpu, call: str) -> GpuProblem:
    return next(item for item in gpu.problems if item.call == call)


def test_eight_healthy_gpus(start: Start) -> None:
    snapshot = start().ask().gpus
    assert (snapshot.driver, snapshot.message, snapshot.simulated) == ("ok", "", False)
    assert (snapshot.driver_version, snapshot.cuda_version) == ("580.82.07", "13.0")
    assert [gpu.index for gpu in snapshot.gpus] == list(range(8))
    assert {gpu.state for gpu in snapshot.gpus} == {"ok"}
    assert [gpu.memory_used for gpu in snapshot.gpus] == [1000 * MIB * (index + 1) for index in range(8)]
    gpu = snapshot.gpus[3]
    assert (gpu.memory_reserved, gpu.memory_total) == (615 * MIB, 143771 * MIB)
    assert (gpu.utilization, gpu.power, gpu.power_limit, gpu.temperature) == (30, 103.0, 700.0, 43)
    assert (gpu.sm_clock, gpu.memory_clock, gpu.name) == (1980, 3201, "NVIDIA H200")
    assert gpu.uuid == "GPU-00000000-0000-0000-0000-000000000003"
    assert gpu.processes == () and gpu.problems == ()


def test_new_readings_keep_coming(start: Start, fake_nvml: FakeNvml) -> None:
    process = start()
    process.ask()
    fake_nvml.write(*gpus(), "gpu 2 used=77 util=99")
    answer = process.until(lambda answer: answer.gpus.gpus[2].memory_used == 77 * MIB)
    assert answer.gpus.gpus[2].utilization == 99
    assert max(answer.age(index) for index in range(8)) < 5 * INTERVAL


def test_an_old_driver_without_the_second_form_of_memory(start: Start, tmp_path: Path) -> None:
    library = build_library(tmp_path, "-DWITHOUT_MEMORY_V2")
    gpu = start(LD_LIBRARY_PATH=str(library.parent)).ask().gpus.gpus[0]
    assert (gpu.state, gpu.memory_used, gpu.memory_reserved) == ("ok", 1615 * MIB, None)


@pytest.mark.parametrize("code", [15, 16])
def test_a_lost_gpu_is_a_state_and_comes_back(start: Start, fake_nvml: FakeNvml, code: int) -> None:
    process = start()
    before = process.ask().gpus.gpus[3].mono
    fake_nvml.write(*gpus(), f"fail 3 * {code}")
    answer = process.until(lambda answer: answer.gpus.gpus[3].state == "lost")
    lost = answer.gpus.gpus[3]
    assert lost.uuid == "GPU-00000000-0000-0000-0000-000000000003"
    assert lost.memory_used is None and lost.utilization is None and lost.processes is None
    assert before <= lost.mono < answer.now
    assert any("GPU" in item.message for item in lost.problems)
    assert [gpu.state for gpu in answer.gpus.gpus].count("ok") == 7
    fake_nvml.write(*gpus())
    back = process.until(lambda answer: answer.gpus.gpus[3].state == "ok").gpus.gpus[3]
    assert back.memory_used == 4000 * MIB


def test_a_gpu_lost_from_the_start(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write(*gpus(), "fail 0 * 15")
    snapshot = start().ask().gpus
    assert [gpu.state for gpu in snapshot.gpus] == ["lost"] + ["ok"] * 7
    assert snapshot.gpus[0].name is None


def test_what_a_gpu_does_not_support_is_unknown_and_the_gpu_is_well(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write(*gpus(), *(f"fail 5 {call} 3" for call in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature")))
    gpu = start().ask().gpus.gpus[5]
    assert (gpu.state, gpu.power, gpu.temperature) == ("ok", None, None)
    assert (gpu.power_limit, gpu.utilization, gpu.memory_used) == (700.0, 50, 6000 * MIB)
    assert problem(gpu, "nvmlDeviceGetPowerUsage").message == "Not Supported"


def test_a_gpu_without_a_memory_reading(start: Start, fake_nvml: FakeNvml) -> None:
    memory = "nvmlDeviceGetMemoryInfo_v2"
    fake_nvml.write(*gpus(), f"fail 1 {memory} 999", f"fail 2 {memory} 3")
    answer = start().ask()
    broken, unsupported = answer.gpus.gpus[1], answer.gpus.gpus[2]
    assert (broken.state, broken.memory_used, broken.utilization) == ("error", None, 10)
    assert problem(broken, "nvmlDeviceGetMemoryInfo").message == "Unknown Error"
    assert (unsupported.state, unsupported.memory_used, unsupported.utilization) == ("ok", None, 20)
    assert answer.age(2) < 1


def test_a_call_that_hangs_for_a_minute_holds_up_nothing(start: Start, fake_nvml: FakeNvml) -> None:
    process = start()
    process.ask()
    fake_nvml.write(*gpus(), "fail 5 nvmlDeviceGetTemperature 0 60000")
    process.until(lambda answer: bool(answer.gpus.gpus[5].problems))
    fake_nvml.write(*gpus(), "gpu 5 used=5 util=55 power=55000", "proc 5 1 5", "gpu 6 used=6")

    def went_on(answer: Answer) -> bool:
        gpu = answer.gpus.gpus[5]
        return (gpu.memory_used, gpu.utilization, gpu.power) == (5 * MIB, 55, 55.0) and gpu.temperature is None

    answer = process.until(went_on)
    gpu = answer.gpus.gpus[5]
    assert gpu.state == "ok"
    assert gpu.processes and gpu.processes[0].pid == 1
    assert problem(gpu, "nvmlDeviceGetTemperature").message.startswith("hanging for ")
    assert answer.gpus.gpus[6].memory_used == 6 * MIB
    assert max(answer.age(index) for index in range(8)) < 5 * INTERVAL
    threads = answer.raw["threads"]
    time.sleep(3 * INTERVAL)
    assert process.ask().raw["threads"] == threads, "a hanging call is not made again"


def test_memory_that_hangs_leaves_the_last_reading_with_its_age(start: Start, fake_nvml: FakeNvml) -> None:
    process = start()
    process.ask()
    fake_nvml.write(*gpus(), "fail 7 nvmlDeviceGetMemoryInfo_v2 0 60000")
    answer = process.until(lambda answer: answer.gpus.gpus[7].state == "silent")
    gpu = answer.gpus.gpus[7]
    assert gpu.memory_used == 8000 * MIB and answer.age(7) > 3
    assert gpu.utilization == 70, "the other fields are fresh"
    assert answer.age(6) < 5 * INTERVAL


def test_a_slow_call_still_gives_its_value_and_recovers(start: Start, fake_nvml: FakeNvml) -> None:
    call = "nvmlDeviceGetPowerUsage"
    fake_nvml.write(*gpus(), f"fail 4 {call} 0 1500")
    process = start()
    process.until(lambda answer: any("slow" in item.message for item in answer.gpus.gpus[4].problems))
    answer = process.until(lambda answer: any("hanging" in item.message for item in answer.gpus.gpus[4].problems))
    assert answer.gpus.gpus[4].power == 104.0, "a value of a second ago beats none"
    assert answer.age(4) < 5 * INTERVAL
    crowded = answer.raw["threads"]
    fake_nvml.write(*gpus())
    process.until(lambda answer: not answer.gpus.gpus[4].problems and answer.raw["threads"] < crowded)


def test_a_gpu_whose_handle_hangs(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write(*gpus(), "fail 2 * 0 60000")
    answer = start().ask()
    assert [gpu.state for gpu in answer.gpus.gpus] == ["ok"] * 2 + ["silent"] + ["ok"] * 5
    assert answer.gpus.gpus[2].problems[0].call == "nvmlDeviceGetHandleByIndex"


def test_a_driver_that_does_not_answer_at_all(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write(*gpus(), "fail * nvmlInitWithFlags 0 60000")
    snapshot = start().ask().gpus
    assert (snapshot.driver, snapshot.gpus) == ("error", ())
    assert snapshot.message.startswith("nvmlInit has not answered for ")


def test_holders_of_memory(start: Start, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", "input()", "--marker"], stdin=subprocess.PIPE)
    try:
        gone = 2**22 - 7  # above pid_max of most machines, and surely no process of this one
        fake_nvml.write(
            *gpus(), f"proc 1 {holder.pid} 700", f"proc 1 {gone} na", f"graphics 1 {holder.pid} 700", "graphics 1 1 9"
        )
        processes = start().ask().gpus.gpus[1].processes
        assert processes is not None
        assert [(process.pid, process.memory) for process in processes] == [
            (holder.pid, 700 * MIB),
            (1, 9 * MIB),
            (gone, None),
        ]
        first, _, last = processes
        assert first.name and "python" in first.name.lower() and first.user
        assert first.command and first.command.endswith("--marker")
        assert (last.name, last.user, last.command, last.job) == (None, None, None, None)
    finally:
        assert holder.stdin
        holder.stdin.close()
        holder.wait()


def test_processes_that_may_not_be_listed_are_unknown_not_none(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write(*gpus(), "fail 0 nvmlDeviceGetComputeRunningProcesses_v3 4")
    gpu = start().ask().gpus.gpus[0]
    assert gpu.processes is None and gpu.state == "ok"


def test_no_library_then_a_driver_comes_up(start: Start, fake_nvml: FakeNvml) -> None:
    installed = Path(fake_nvml.environment["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
    installed.unlink()
    process = start()
    snapshot = process.ask().gpus
    assert (snapshot.driver, snapshot.gpus) == ("no_library", ())
    assert "libnvidia-ml.so.1" in snapshot.message and "Install the driver" in snapshot.message
    fake_nvml.install()
    assert len(process.until(lambda answer: answer.gpus.driver == "ok" and answer.gpus.gpus != ()).gpus.gpus) == 8


def test_the_kernel_module_is_not_loaded_then_is(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.unload_driver()
    process = start()
    snapshot = process.ask().gpus
    assert snapshot.driver == "not_loaded" and "modprobe nvidia" in snapshot.message
    fake_nvml.write(*gpus(2))
    assert len(process.until(lambda answer: answer.gpus.gpus != ()).gpus.gpus) == 2


def test_library_and_kernel_module_differ(start: Start, fake_nvml: FakeNvml) -> None:
    fake_nvml.write("init 18", *gpus())
    snapshot = start().ask().gpus
    assert snapshot.driver == "mismatch" and "Reboot" in snapshot.message


def test_a_driver_that_goes_away_and_comes_back(start: Start, fake_nvml: FakeNvml) -> None:
    process = start()
    process.ask()
    fake_nvml.write("init 18", *gpus(), "fail * nvmlDeviceGetCount_v2 18")
    assert process.until(lambda answer: answer.gpus.driver == "mismatch").gpus.gpus == ()
    fake_nvml.write(*gpus())
    process.until(lambda answer: [gpu.state for gpu in answer.gpus.gpus] == ["ok"] * 8)


def test_the_number_of_gpus_changes(start: Start, fake_nvml: FakeNvml) -> None:
    process = start()
    assert len(process.ask().gpus.gpus) == 8
    fake_nvml.write(*gpus(5))
    process.until(lambda answer: [gpu.state for gpu in answer.gpus.gpus] == ["ok"] * 5)
    fake_nvml.write(*gpus(0))
    assert "no GPU" in process.until(lambda answer: not answer.gpus.gpus).gpus.message
    fake_nvml.write(*gpus(8))
    process.until(lambda answer: [gpu.state for gpu in answer.gpus.gpus] == ["ok"] * 8)


def test_simulated_gpus_only_where_nvml_is_absent(start: Start, fake_nvml: FakeNvml) -> None:
    real = start(EAGLE_CONSOLE_SIMULATE_GPUS="1").ask().gpus
    assert not real.simulated and len(real.gpus) == 8
    simulated = start(EAGLE_CONSOLE_SIMULATE_GPUS="1", LD_LIBRARY_PATH="/nonexistent").ask().gpus
    assert simulated.simulated and [gpu.memory_used for gpu in simulated.gpus] == [0] * 8


@pytest.mark.parametrize("version", AGENT_VERSIONS)
def test_every_python_that_a_host_may_have(start: Start, fake_nvml: FakeNvml, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    brought = vendor(tmp_path / "vendor", "pynvml", "psutil")
    workspace = tmp_path / "work"
    (workspace / "output_1k").mkdir(parents=True)
    (workspace / "output_1k" / "model.safetensors").write_bytes(b"x" * 8192)
    fake_nvml.write(*gpus(), "fail 3 * 15", f"proc 1 {os.getpid()} 5")
    process = start(python, f"{ROOT}:{brought}", workspace)
    answer = process.ask()
    assert answer.raw["python"] == version and answer.raw["psutil"] is True
    assert [gpu.state for gpu in answer.gpus.gpus] == ["ok"] * 3 + ["lost"] + ["ok"] * 4
    assert answer.gpus.gpus[1].processes and answer.gpus.gpus[1].processes[0].name
    assert answer.host.memory_total and answer.host.workspace and answer.host.cpu_percent is None
    process.until(lambda answer: answer.host.cpu_percent is not None)
    assert [(entry.name, entry.apparent) for entry in answer.disk.entries] == [("output_1k", 8192)]


def test_a_host_without_psutil_and_without_the_binding(start: Start, tmp_path: Path) -> None:
    python = interpreter("3.9")
    process = start(python, str(ROOT))
    answer = process.ask()
    assert answer.raw["psutil"] is False
    assert answer.gpus.driver == "error" and "nvidia-ml-py" in answer.gpus.message
    assert answer.host.memory_total and answer.host.memory_available and answer.host.uptime
    process.until(lambda answer: answer.host.cpu_percent is not None)
