"""The pure parts of the telemetry, and the lanes with calls of the test's own."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from remote.protocol.gpu import Gpu, GpuProcess, GpuSnapshot
from remote.telemetry import nvml, procstat
from remote.telemetry.counters import Counters, cpu_percent
from remote.telemetry.host import HostSampler, filesystem
from remote.telemetry.lanes import HANG_AFTER, Crew, Outcome, Probe, ThreadBudget
from remote.telemetry.processes import label_jobs, merge_holders, name_of
from remote.telemetry.readings import Reading, gpu_record
from remote.telemetry.simulated import Server, simulated_snapshot

GIB = 2**30


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def test_cpu_times_of_all_cores() -> None:
    text = "cpu  100 10 50 800 40 5 5 20 30 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nbtime 1\n"
    assert procstat.parse_cpu(text) == (190.0, 1030.0)


@pytest.mark.parametrize("text", ["", "intr 1 2\n", "cpu0 1 2 3\n"])
def test_cpu_times_missing(text: str) -> None:
    with pytest.raises(ValueError, match="no cpu line"):
        procstat.parse_cpu(text)


def test_memory() -> None:
    text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nHugePages_Total:       0\n"
    assert procstat.parse_memory(text) == (1_024_000, 614_400)


def test_memory_of_an_old_kernel() -> None:
    with pytest.raises(ValueError, match="MemAvailable"):
        procstat.parse_memory("MemTotal: 1000 kB\nMemFree: 100 kB\n")


def test_counters_of_a_made_up_host(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 1 1 1 1 1 1 1 0 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2 kB\nMemAvailable: 1 kB\n")
    (tmp_path / "uptime").write_text("12.5 20.0\n")
    assert procstat.read(tmp_path) == Counters(6.0, 8.0, 2048, 1024, 12.5)


@pytest.mark.parametrize(
    ("before", "now", "percent"),
    [
        (None, (10, 100), None),
        ((10, 100), (10, 100), None),
        ((10, 100), (60, 200), 50.0),
        ((10, 100), (5, 200), 0.0),
        ((10, 100), (210, 200), 100.0),
    ],
)
def test_cpu_percent(before: tuple[float, float] | None, now: tuple[float, float], percent: float | None) -> None:
    first = Counters(*before, 1, 1, 1.0) if before else None
    assert cpu_percent(first, Counters(*now, 1, 1, 1.0)) == percent


def test_psutil_and_proc_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_psutil = HostSampler("/").sample()
    monkeypatch.setattr("remote.telemetry.host._psutil", lambda: None)
    without = HostSampler("/").sample()
    assert with_psutil.memory_total == without.memory_total
    assert with_psutil.memory_available == pytest.approx(without.memory_available, rel=0.05)
    assert with_psutil.uptime == pytest.approx(without.uptime, abs=5)
    assert with_psutil.workspace and without.workspace and with_psutil.workspace.total == without.workspace.total


def test_a_missing_workspace_has_no_file_system(tmp_path: Path) -> None:
    sample = HostSampler(str(tmp_path / "missing")).sample()
    assert sample.workspace is None and sample.shm is not None
    assert HostSampler(None).sample().workspace is None


def test_a_file_system_that_does_not_answer_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(
        "remote.telemetry.host.filesystem",
        lambda path: release.wait(10) and None if path == "/dead" else filesystem(path),
    )
    sampler = HostSampler("/dead")
    begin = time.monotonic()
    samples = [sampler.sample() for _ in range(3)]
    release.set()
    assert time.monotonic() - begin < 2
    assert all(sample.workspace is None and sample.memory_total for sample in samples)


@pytest.mark.parametrize(
    ("compute", "graphics", "merged"),
    [
        ([], [], ()),
        ([(1, 5), (2, 9)], [], ((2, 9), (1, 5))),
        ([(1, 5), (1, 7)], [], ((1, 12),)),  # two MIG instances
        ([(1, 5)], [(1, 5), (3, 2)], ((1, 5), (3, 2))),  # computes and draws
        ([(1, None)], [(1, 4)], ((1, 4),)),
        ([(1, None), (2, 3)], [], ((2, 3), (1, None))),
    ],
)
def test_one_row_a_pid(compute: list[nvml.Any], graphics: list[nvml.Any], merged: tuple[nvml.Any, ...]) -> None:
    assert merge_holders(compute, graphics) == merged


def test_jobs_are_written_on_their_processes() -> None:
    first = Gpu(0, "ok", 1.0, processes=(GpuProcess(10), GpuProcess(11)))
    second = Gpu(1, "ok", 1.0, processes=None)
    labelled = label_jobs(GpuSnapshot("ok", (first, second)), {11: "serve-1"})
    assert [process.job for process in labelled.gpus[0].processes or ()] == [None, "serve-1"]
    assert labelled.gpus[1] is second


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (NvmlError(12), "no_library", "libnvidia-ml.so.1"),
        (NvmlError(9), "not_loaded", "modprobe"),
        (NvmlError(18), "mismatch", "Reboot"),
        (NvmlError(999), "error", "nvmlInit: error 999"),
        (ImportError("pynvml"), "error", "nvidia-ml-py"),
    ],
)
def test_driver_states(error: Exception, state: str, words: str) -> None:
    status = nvml.driver_failure("nvmlInit", error)
    assert status.state == state and words in status.message


@pytest.mark.parametrize(("number", "text"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4")])
def test_cuda_versions(number: int, text: str) -> None:
    assert nvml.cuda_version(number) == text


def record(now: float = 100.0, **changed: Reading) -> Gpu:
    calls = [
        value for name, value in vars(nvml).items() if name.isupper() and isinstance(value, str) and value[:4] == "nvml"
    ]
    good = Outcome(99.5, 0.001, 7)
    readings = {call: Reading(call, good, good) for call in calls}
    memory = Outcome(99.0, 0.001, nvml.Memory(96 * GIB, 3 * GIB, GIB))
    readings[nvml.MEMORY] = Reading(nvml.MEMORY, memory, memory)
    for call in (nvml.COMPUTE, nvml.GRAPHICS):
        readings[call] = Reading(call, Outcome(99.5, 0.001, ()))
    readings.update({reading.call: reading for reading in changed.values()})
    return gpu_record(0, readings.values(), now, 50.0, 5.0, lambda pid: None)


def test_a_record_of_a_healthy_gpu() -> None:
    gpu = record()
    assert (gpu.state, gpu.mono, gpu.memory_used, gpu.utilization, gpu.processes) == ("ok", 99.0, 3 * GIB, 7, ())
    assert gpu.problems == ()


def test_old_values_are_unknown_but_memory_keeps_its_age_while_a_call_hangs() -> None:
    memory = Outcome(90.0, 0.001, nvml.Memory(96 * GIB, 3 * GIB, GIB))
    gpu = record(
        memory=Reading(nvml.MEMORY, memory, memory, in_flight=10.0),
        power=Reading(nvml.POWER, Outcome(90.0, 0.001, 7), in_flight=10.0),
    )
    assert (gpu.state, gpu.mono, gpu.memory_used, gpu.power) == ("silent", 90.0, 3 * GIB, None)
    assert [problem.message for problem in gpu.problems] == ["hanging for 10 s"] * 2


def test_old_values_without_a_hanging_call_are_an_error() -> None:
    memory = Outcome(90.0, 0.001, nvml.Memory(96 * GIB, 3 * GIB, GIB))
    gpu = record(memory=Reading(nvml.MEMORY, memory, memory))
    assert (gpu.state, gpu.memory_used) == ("error", None)


def test_a_gpu_that_was_never_read_is_as_old_as_its_first_sight() -> None:
    failed = Reading(nvml.MEMORY, Outcome(99.0, 0.001, error=NvmlError(999)))
    gpu = record(memory=failed)
    assert (gpu.state, gpu.mono) == ("error", 50.0)


def test_simulated_gpus_are_marked_and_deterministic() -> None:
    idle = simulated_snapshot(1000.0, ())
    assert idle.simulated and len(idle.gpus) == 8
    assert {(gpu.memory_used, gpu.utilization) for gpu in idle.gpus} == {(0, 0)}
    assert simulated_snapshot(1000.0, (Server(7, 30.0),)) == simulated_snapshot(1000.0, (Server(7, 30.0),))


def test_simulated_memory_grows_with_a_load_and_stays_below_the_card() -> None:
    used = [simulated_snapshot(1000.0 + t, (Server(7, float(t)),)).gpus[0].memory_used or 0 for t in range(0, 200, 5)]
    assert used == sorted(used) and used[0] == 0 and used[-1] > 80 * GIB
    gpu = simulated_snapshot(1234.0, (Server(7, 200.0),)).gpus[0]
    assert used[-1] + (gpu.memory_reserved or 0) < (gpu.memory_total or 0)
    assert (gpu.utilization or 0) > 50 and (gpu.power or 0) < (gpu.power_limit or 0)
    assert [(row.pid, row.memory) for row in gpu.processes or ()] == [(7, gpu.memory_used)]


def test_the_holder_of_simulated_memory_has_a_name() -> None:
    name = name_of(os.getpid())
    assert name is not None and name_of(2**22 + 1) is None
    (row,) = simulated_snapshot(0.0, (Server(os.getpid(), 5.0, name),)).gpus[0].processes or ()
    assert row.name and row.user and "python" in (row.command or "")


def settle(crew: Crew) -> None:
    deadline = time.monotonic() + 5
    while not crew.settled(time.monotonic()):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_call_that_fails_does_not_stop_the_others() -> None:
    def fail() -> None:
        raise ValueError("no")

    broken, well = Probe("broken", fail), Probe("well", lambda: 3)
    crew = Crew("test", [broken, well], ThreadBudget(4))
    crew.start_round()
    settle(crew)
    assert isinstance(broken.outcome and broken.outcome.error, ValueError)
    assert well.value == 3
    crew.close()


def test_the_probes_behind_a_hanging_call_move_on_and_it_rejoins() -> None:
    release, calls = threading.Event(), []

    def stuck() -> int:
        calls.append(threading.current_thread())
        return int(release.wait(10))

    hanging, well = Probe("hanging", stuck), Probe("well", lambda: threading.current_thread())
    crew = Crew("test", [hanging, well], ThreadBudget(4))
    crew.start_round()
    while not hanging.in_flight(time.monotonic()):
        time.sleep(0.002)
    now = time.monotonic() + HANG_AFTER + 0.1
    crew.relieve(now)
    deadline = time.monotonic() + 5
    while well.value is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    crew.start_round()
    crew.relieve(now)
    assert len(calls) == 1, "never twice at the same time"
    assert well.value is not calls[0]
    release.set()
    settle(crew)
    for _ in range(3):
        crew.start_round()
        settle(crew)
    assert calls[-1] is well.value, "in one lane again"
    crew.close()


def test_there_are_never_more_threads_than_the_budget() -> None:
    release = threading.Event()
    budget = ThreadBudget(2)
    assert budget.start(lambda: bool(release.wait(10)), "one")
    assert budget.start(lambda: bool(release.wait(10)), "two")
    assert not budget.start(lambda: None, "three")
    release.set()
    deadline = time.monotonic() + 5
    while not budget.start(lambda: None, "three"):
        assert time.monotonic() < deadline
        time.sleep(0.002)
