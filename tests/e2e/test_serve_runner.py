"""Real vLLM on the CPU through launcher and runner: ready, a question, and an end that leaves no process."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from fixtures.chat import ask

from remote import procfs
from remote.jobs.launcher import Launcher
from remote.jobs.starts import StartsFile
from remote.jobs.store import JobStore
from remote.policy import Policy
from remote.protocol import jobs
from remote.protocol.errors import CONFLICT, RequestError
from remote.protocol.jobs import Job, ProcessId
from remote.protocol.stages import LaunchRequest, StageContext

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

READY_SECONDS = 240
ROOT = Path(__file__).parents[2]


@pytest.fixture
def context() -> StageContext:
    """The pipeline environment and the verifier; without them the test is skipped here and fails in CI."""
    pipeline = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
    python, verifier = pipeline / "ml" / "bin" / "python", pipeline / "SmolLM2-135M-Instruct"
    if not python.exists() or not verifier.is_dir():
        message = f"no pipeline environment in {pipeline}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return StageContext(verifier=str(verifier), python=str(python))


class Served:
    """A served verifier, and every process that it was ever seen to have."""

    def __init__(self, workspace: Path, context: StageContext) -> None:
        self.store = JobStore(str(workspace))
        self.launcher = Launcher(self.store, Policy(False, "", (str(workspace),), str(workspace)), None)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        request = LaunchRequest("serve", {"port": self.port}, context, "a test")
        self.job = self.launcher.launch(request, f"key {self.port}")  # the same key would give the same job
        records = self.store.records(self.job.id)
        assert records.started is not None
        self.runner, self.main = records.started.runner, records.started.main
        self.seen: set[ProcessId] = set()

    def wait_for(self, *states: str, seconds: float) -> Job:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.store.find(self.job.id)
            self.seen.update(
                ProcessId(record.pid, record.start_ticks, procfs.boot_id())
                for record in procfs.descendants([self.runner.pid])
            )
            if job.state in states:
                return job
            assert job.state not in jobs.ENDED_STATES, (job, self.store.read_log(job.id, tail=40).lines)
            time.sleep(0.2)
        raise AssertionError(f"still {job.state}: {self.store.read_log(job.id, tail=40).lines}")

    def wait_for_runner(self) -> None:
        """The runner goes a moment after its last record."""
        deadline = time.monotonic() + 10
        while procfs.alive(self.runner):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def living(self) -> list[str]:
        return [str(procfs.command_line(process.pid)) for process in self.seen if procfs.alive(process)]

    def end(self) -> None:
        try:
            self.launcher.stop(self.job.id, "the test's end", True)
        except RequestError as error:
            assert error.code == CONFLICT
        self.wait_for(*jobs.ENDED_STATES, seconds=30)


@pytest.fixture
def served(tmp_path: Path, context: StageContext):
    server = Served(tmp_path, context)
    yield server
    server.end()


def test_serves_answers_and_leaves_nothing(served: Served) -> None:
    job = served.wait_for(jobs.READY, seconds=READY_SECONDS)
    assert "The capital of France is Paris" in ask(served.port, "What is the capital of France?")
    assert job.progress.ready
    assert len(served.seen) >= 3, "the API server, its engine and a worker"
    first_line = served.store.read_log(job.id, offset=0).lines[0]
    assert first_line == job.command_line, "the log begins with the exact command line of the plan"
    assert "cpu_stub" not in first_line

    assert served.launcher.stop("serve", "a test", False).state == jobs.STOPPING
    job = served.wait_for(jobs.STOPPED, seconds=60)
    assert served.living() == []
    served.wait_for_runner()
    assert job.failure is None
    kinds = [event.kind for event in served.store.events(job.id, 0)]
    assert kinds[0] == jobs.EVENT_STARTED and kinds[-1] == jobs.EVENT_ENDED
    assert kinds.index(jobs.EVENT_READY) < kinds.index(jobs.EVENT_STOP)
    phases = [phase.name for phase in job.progress.phases]
    assert phases[-1] == "ready" and not job.progress.ready, "how far it came stays, that it is ready does not"
    assert len(phases) >= 4 and all(phase.end is not None for phase in job.progress.phases)


def test_a_killed_api_server_leaves_nothing(served: Served) -> None:
    served.wait_for(jobs.READY, seconds=READY_SECONDS)
    engines = [line for line in served.living() if "VLLM::" in line]
    assert engines, "there is something that could be left over"
    os.kill(served.main.pid, signal.SIGKILL)
    job = served.wait_for(jobs.FAILED, seconds=60)
    assert served.living() == []
    assert job.signal == signal.SIGKILL and job.failure is not None
    records = served.store.records(job.id)
    assert records.exit is not None and records.exit.killed >= len(engines)
    with pytest.raises(RequestError) as refused:
        served.launcher.stop(job.id, "a test", False)
    assert refused.value.code == CONFLICT


def test_a_second_start_is_predicted_from_the_first(served: Served, tmp_path: Path, context: StageContext) -> None:
    served.wait_for(jobs.READY, seconds=READY_SECONDS)
    starts = StartsFile(str(tmp_path)).read()
    assert len(starts) == 1, "the runner has kept the start"
    assert starts[0].seconds["weights"] >= 0 and starts[0].key.model == context.verifier
    assert (
        starts[0].key.version and starts[0].size == (Path(str(context.verifier)) / "model.safetensors").stat().st_size
    )
    served.end()

    again = Served(tmp_path, context)
    try:
        shares, sources, deadline = [0.0], set(), time.monotonic() + READY_SECONDS
        job = again.store.find(again.job.id)
        while job.state != jobs.READY:
            assert time.monotonic() < deadline and job.state not in jobs.ENDED_STATES, job
            if job.progress.eta is not None:
                eta = job.progress.eta
                assert 0 < eta.low <= eta.seconds <= eta.high
                shares.append(eta.share)
                sources.add(eta.source)
            time.sleep(0.2)
            job = again.store.find(again.job.id)
        assert job.progress.eta is None, "what is ready has no estimate"
        assert shares == sorted(shares) and 0.5 < shares[-1] < 1.0
        assert any(source.startswith("from 1 earlier start") for source in sources), sources
        assert len(StartsFile(str(tmp_path)).read()) == 2
    finally:
        again.end()
