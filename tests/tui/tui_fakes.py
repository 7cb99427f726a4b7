"""A host that needs no network: states to publish, and a session that answers as an agent would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from fixtures import disk_records
from textual.pilot import Pilot

from eagle_console.client import HostClient
from eagle_console.config import HostProfile
from eagle_console.link.errors import LinkError, NotConnected
from eagle_console.link.questions import Prompt
from eagle_console.state import HostKeyQuestion, HostState, LinkState, LinkStatus, Timed
from eagle_console.tui.app import ConsoleApp
from pipeline.plan.catalog import stage_named
from remote.protocol.codec import to_wire
from remote.protocol.disk import ArtifactUsage, DiskSnapshot
from remote.protocol.errors import RequestError
from remote.protocol.frames import TOPIC_LOG, AgentHello, Event
from remote.protocol.gpu import Gpu, GpuProblem, GpuProcess, GpuSnapshot
from remote.protocol.host import Filesystem, HostSample
from remote.protocol.jobs import Job, JobList, LogChunk
from remote.protocol.progress import Failure, Phase, Progress
from remote.protocol.stages import Check, ParameterInfo, StageInfo, StageList
from remote.protocol.starts import EarlierStarts

GIB = 1 << 30
NOW = 1_000.0
WALL = 1_780_000_000.0

PROFILE = HostProfile(
    name="gpu-box",
    address="root@gpu-box",
    workspace="/data/eagle3-train",
    verifier="/data/models/Kimi-K2.5",
    python="/data/ml/bin/python",
    tensor_parallel=8,
)


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Waits until a condition holds, and for what follows from it to be painted."""
    for _ in range(300):
        if holds():
            await pilot.pause()
            return
        await pilot.pause(0.01)
    raise AssertionError("the expected state never came")


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, start: float) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now


class FakeSession:
    """Answers the operations from tables and remembers what was asked."""

    def __init__(self) -> None:
        self.hello = hello()
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.answers: dict[str, Any] = {
            "stages": stage_list(),
            "plan": None,
            "scan": disk(),
            "starts": EarlierStarts(),
            **disk_records.answers(),
        }
        self.held: dict[str, asyncio.Event] = {}  # operations that answer once their event is set
        self.log: asyncio.Queue[LogChunk | Exception] = asyncio.Queue()
        self.subscribed: list[tuple[str, dict[str, Any]]] = []

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        self.asked.append((op, args or {}, key))
        if op in self.held:
            await self.held[op].wait()
        answer = self.answers.get(op)
        if op == "plan" and answer is None:
            stage = next(stage for stage in self.answers["stages"].stages if stage.name == (args or {})["stage"])
            words = " ".join(f"{name}={value}" for name, value in (args or {})["parameters"].items())
            answer = replace(stage, command_line=f"{stage.command_line} {words}".rstrip())
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise RequestError("unsupported", f"this fake does not know {op}")
        wire: dict[str, Any] = to_wire(answer)
        return wire

    def asked_for(self, op: str) -> list[dict[str, Any]]:
        """The arguments of every request for an operation."""
        return [args for name, args, _ in self.asked if name == op]

    async def subscribe(
        self, topic: str, interval: float = 1.0, args: dict[str, Any] | None = None
    ) -> AsyncIterator[Event]:
        self.subscribed.append((topic, args or {}))
        while topic == TOPIC_LOG:
            chunk = await self.log.get()
            if isinstance(chunk, Exception):
                raise chunk
            yield Event(sub=1, topic=topic, mono=0, wall=0, data=to_wire(chunk))


class FakeTransport:
    """A connection whose shell ends when the test says so, and whose ports are this machine's."""

    def __init__(self) -> None:
        self.shells: list[tuple[str, ...]] = []
        self.shell_ends = asyncio.Event()
        self.trouble: LinkError | None = None

    async def shell(self, words: tuple[str, ...]) -> int:
        self.shells.append(tuple(words))
        await self.shell_ends.wait()
        if self.trouble is not None:
            raise self.trouble
        return 0

    async def open_port(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.trouble is not None:
            raise self.trouble
        return await asyncio.open_connection("127.0.0.1", port)


class FakeLink:
    """A link that publishes what the test says."""

    def __init__(self, publish: Callable[[HostState], None]) -> None:
        self.publish = publish
        self.session = FakeSession()
        self.transport = FakeTransport()
        self.connected = True
        self.reconnects = 0
        self.trusted: list[HostKeyQuestion] = []
        self.answered: list[tuple[Prompt, str | None]] = []

    @property
    def client(self) -> HostClient:
        if not self.connected:
            raise NotConnected("gpu-box is not connected")
        return HostClient(self.session)

    async def run(self) -> None:
        await asyncio.Event().wait()

    def reconnect_now(self) -> None:
        self.reconnects += 1

    def trust_host_key(self, question: HostKeyQuestion) -> None:
        self.trusted.append(question)

    def answer_prompt(self, prompt: Prompt, answer: str | None) -> None:
        self.answered.append((prompt, answer))


class TestConsole(ConsoleApp):
    """The app on a fake link, with clocks that stand still."""

    __test__ = False

    def __init__(self, state: HostState | None = None, profile: HostProfile = PROFILE, ascii: bool = False) -> None:
        self.fake: FakeLink
        self.clock, self.wall_clock = Clock(NOW + 0.4), Clock(WALL)
        super().__init__(profile, self._make, self.clock, self.wall_clock, ascii)
        self.requested_by = "someone@console"
        if state is not None:
            self.state = state

    def _make(self, publish: Callable[[HostState], None]) -> FakeLink:
        self.fake = FakeLink(publish)
        return self.fake


def hello(**changes: Any) -> AgentHello:
    base = AgentHello(
        protocol=1, agent="0" * 12, host="gpu-box", user="root", machine_id="m", boot_id="b", python="3.11.2", pid=7,
        wall=WALL, readonly=False, workspace="/data/eagle3-train",
    )  # fmt: skip
    return replace(base, **changes)


def gpus(used: float = 72.1, lost: bool = False) -> GpuSnapshot:
    cards = []
    for index in range(8):
        process = GpuProcess(4_123, int(used * GIB), "VLLM::Worker_TP", "root", "VLLM::Worker_TP0", "serve-20260528-1")
        cards.append(
            Gpu(
                index=index,
                state="ok",
                mono=1.0,
                name="NVIDIA RTX PRO 6000",
                memory_used=int((used - index * 0.1) * GIB),
                memory_total=int(95.6 * GIB),
                utilization=98 - index,
                power=412.0 + index,
                power_limit=600.0,
                temperature=71 + index * 2,
                processes=(process,),
            )
        )
    if lost:
        cards[3] = Gpu(3, "lost", 1.0, problems=(GpuProblem("nvmlDeviceGetMemoryInfo", "GPU is lost"),))
        cards[5] = Gpu(5, "silent", 1.0, problems=(GpuProblem("nvmlDeviceGetPowerUsage", "hangs for 12 s"),))
        cards[6] = Gpu(6, "ok", 1.0, name="NVIDIA RTX PRO 6000", memory_total=int(95.6 * GIB))
    return GpuSnapshot("ok", tuple(cards), driver_version="580.82", cuda_version="13.0")


def host_sample() -> HostSample:
    shm = Filesystem("/dev/shm", 512 * GIB, 500 * GIB, 12 * GIB)
    return HostSample(
        mono=1.0, cpus=128, cpu_percent=12.0, memory_total=1024 * GIB, memory_available=700 * GIB,
        load=(12.1, 9.0, 8.2), uptime=1_050_000.0, shm=shm, workspace=filesystem(),
    )  # fmt: skip


def filesystem() -> Filesystem:
    return Filesystem("/data", 1_920_000_000_000, 311_000_000_000, 1_600_000_000_000)


def disk() -> DiskSnapshot:
    names = [
        ("output_1k", 89e9, 312), ("data_1k", 27e9, 10_004), ("output_test", 8.9e9, 44), ("data_test", 213e6, 204),
        ("logs", 4e6, 12),
    ]  # fmt: skip
    entries = tuple(
        ArtifactUsage(f"/data/eagle3-train/{n}", n, int(size), int(size), files) for n, size, files in names
    )
    return DiskSnapshot("/data/eagle3-train", entries, filesystem(), scanned=WALL - 60)


PHASES = (
    Phase("config", 0, 3),
    Phase("workers", 3, 44),
    Phase("weights", 44, None, "default loader, 64 shards"),
)


def job(**changes: Any) -> Job:
    base = Job(
        id="serve-20260528-203000-1a2b", stage="serve", kind="service", state="running", created=WALL - 540,
        host="gpu-box", parameters={"verifier": "/data/models/Kimi-K2.5", "tensor_parallel": 8},
        command_line="/data/ml/bin/vllm serve /data/models/Kimi-K2.5 --host 127.0.0.1 --port 8000",
        progress=Progress("weights", PHASES, 39, 64, "shards", 61.0), started=WALL - 536, seconds=536.0,
        pids=(4123, 4200), health_url="http://127.0.0.1:8000/health",
        log="/data/eagle3-train/.eagle_console/jobs/serve-20260528-203000-1a2b/stage.log",
    )  # fmt: skip
    return replace(base, **changes)


def done_check() -> Job:
    return job(
        id="check-20260528-190000-77aa", stage="check", kind="task", state="done", progress=Progress(ready=True),
        seconds=14.0, code=0, ended=WALL - 3_600, parameters={}, health_url=None,
    )  # fmt: skip


def ready_job() -> Job:
    phases = (
        *PHASES[:2],
        Phase("weights", 44, 1_300),
        Phase("compile", 1_300, 1_340),
        Phase("graphs", 1_340, 1_372),
        Phase("ready", 1_372),
    )
    return job(state="ready", progress=Progress("ready", phases, ready=True), seconds=5_000.0)


def failed_job() -> Job:
    failure = Failure(
        "gpu_memory_busy",
        "GPU 0 has 3.1 GiB free of 95.6 GiB, and vLLM wants 86.0 GiB.",
        "Free the GPUs: pid 991 (python) holds 91.9 GiB.",
        "ValueError: Free memory on device (3.1/95.6 GiB) on startup is less than desired [/data/x]",
    )
    phases = (Phase("config", 0, 3), Phase("workers", 3, 21))
    return job(
        state="failed", code=1, failure=failure, ended=WALL - 30, seconds=21.0, progress=Progress("workers", phases)
    )


DEFAULTS = {"verifier": "/data/models/Kimi-K2.5", "port": 8000}


def stage_list(blocked: bool = False) -> StageList:
    checks = [Check("ml_environment", "ok", "vllm 0.22.0, torch 2.9.1")]
    if blocked:
        checks.append(Check("gpu_memory", "blocked", "GPU 0 has 3.1 GiB free", "Free the GPUs first."))
    parameters = tuple(
        ParameterInfo(p.name, p.type, p.help, DEFAULTS.get(p.name), p.unit, p.minimum, p.maximum)
        for p in stage_named("serve").parameters
    )
    serve = StageInfo(
        "serve", "service", "vLLM with the verifier: loads the model, then answers", "blocked" if blocked else "ok",
        tuple(checks), parameters, "vllm serve /data/models/Kimi-K2.5 --port 8000",
    )  # fmt: skip
    check = StageInfo(
        "check", "task", "imports the ML environment and prints its versions", "ok", (), (), "python -m x"
    )
    return StageList((check, serve))


def state(*jobs: Job, received: float = NOW, **changes: Any) -> HostState:
    """A live host with everything known, as of ``received``."""
    base = HostState(
        name="gpu-box",
        link=LinkStatus(LinkState.LIVE),
        hello=hello(),
        gpus=Timed(gpus(), received),
        host=Timed(host_sample(), received),
        disk=Timed(disk(), received),
        jobs=Timed(JobList(tuple(jobs)), received),
        gpu_history={index: tuple(float((i * 7 + index * 13) % 101) for i in range(60)) for index in range(8)},
    )
    return replace(base, **changes)


def chunk(*lines: str) -> LogChunk:
    return LogChunk("serve-20260528-203000-1a2b", 0, 1, 1, lines)
