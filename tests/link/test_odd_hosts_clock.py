"""A host whose clock is off by hours or jumps, and consoles of two versions on one host."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures import ml_environment
from link.odd_host import Asker
from link.sshd import SshServer, introduce, target

from eagle_console.client import HostClient
from eagle_console.link import bootstrap
from eagle_console.link.bundle import Bundle, build, bundles
from eagle_console.link.connect import connect
from eagle_console.link.supervisor import Supervisor
from eagle_console.state import Freshness, HostState, freshness
from remote.protocol.frames import TOPIC_JOBS
from remote.protocol.jobs import ENDED_STATES, READY, STOPPED, Job
from remote.protocol.stages import LaunchRequest, StageContext

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]

HOUR = 3600


class Clock:
    """The wall clock of a host."""

    def __init__(self, folder: Path) -> None:
        self.library = folder / "shifted_clock.so"
        self._shift = folder / "shift"
        source = Path(__file__).parents[1] / "fixtures" / "shifted_clock.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(self.library), str(source), "-ldl"], check=True)
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT": str(self._shift)}

    def set(self, seconds: int) -> None:
        """Sets the clock off by so much, as its hosts' processes read it from now on."""
        self._shift.write_text(str(seconds))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def server(start_sshd: StartSshd, console_home: Path, clock: Clock) -> SshServer:
    server = start_sshd(environment=clock.environment)
    introduce(server, console_home)
    return server


async def state(client: HostClient, job_id: str, *states: str) -> Job:
    async with asyncio.timeout(20):
        async for _ in client.session.subscribe(TOPIC_JOBS, 0.5):
            job = await client.job(job_id)
            if job.state in states:
                return job
    raise AssertionError("the subscription ended")


@pytest.mark.parametrize("off", [-5 * HOUR, 5 * HOUR])
def test_a_clock_that_is_off_is_named(
    server: SshServer, clock: Clock, capfd: pytest.CaptureFixture[str], off: int
) -> None:
    clock.set(off)
    answer = Asker(capfd)(server, "doctor")
    (check,) = [check for check in answer.document["checks"] if check["rule"] == "clock"]
    assert check["verdict"] == "warning"
    seconds = float(check["reason"].rpartition(" s")[0].rpartition(" ")[2])
    assert seconds == pytest.approx(off, abs=5)


@pytest.mark.parametrize("off", [-5 * HOUR, 5 * HOUR])
async def test_freshness_is_of_the_console_s_own_clock(server: SshServer, clock: Clock, off: int) -> None:
    clock.set(off)
    seen: list[HostState] = []
    arrived = asyncio.Event()

    def publish(state: HostState) -> None:
        seen.append(state)
        if state.host is not None:
            arrived.set()

    running = asyncio.create_task(Supervisor(target(server), publish).run())
    try:
        await asyncio.wait_for(arrived.wait(), 20)
        word, age = freshness(seen[-1], seen[-1].host, time.monotonic())
        assert word is Freshness.LIVE
        assert age is not None and 0 <= age < 3
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("jump", [-5 * HOUR, 5 * HOUR])
async def test_a_clock_that_jumps_while_a_job_runs(server: SshServer, clock: Clock, tmp_path: Path, jump: int) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    python, verifier = ml_environment.make(tmp_path)
    context = StageContext(verifier=str(verifier), python=str(python))
    begun = time.monotonic()
    async with connect(target(server, workspace), 30) as client:
        request = LaunchRequest("serve", {"port": ml_environment.free_port()}, context)
        launched = await client.launch(request, key="k")
        await state(client, launched.id, READY)
        clock.set(jump)
        running = await client.job(launched.id)
        assert running.state == READY, "a clock that jumps ends no job"
        assert running.seconds is not None
        assert 0 <= running.seconds <= time.monotonic() - begun + 0.1
        assert (await client.launch(request, key="k")).id == launched.id
        await client.stop(launched.id, requested_by="the test", force=True)
        ended = await state(client, launched.id, *ENDED_STATES)
        assert ended.state == STOPPED
        assert ended.seconds is not None
        assert running.seconds <= ended.seconds + 0.1 <= time.monotonic() - begun + 0.2
        assert all(phase.end is None or 0 <= phase.start <= phase.end for phase in ended.progress.phases)
        (listed,) = (await client.jobs()).jobs
        assert listed.seconds == ended.seconds


async def test_two_versions_side_by_side(sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older and a newer console at once: two bundles, and each stops the other's job."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    python, verifier = ml_environment.make(tmp_path)
    context = StageContext(verifier=str(verifier), python=str(python))

    async def run(mine: HostClient, other: HostClient, key: str) -> str:
        launched = await mine.launch(LaunchRequest("serve", {"port": ml_environment.free_port()}, context), key=key)
        await state(other, launched.id, READY)
        await other.stop(launched.id, requested_by="the other version", force=True)
        assert (await state(mine, launched.id, *ENDED_STATES)).state == STOPPED
        return launched.id

    async with connect(target(sshd, workspace), 30) as older:
        newer_bundles = {"any": _newer()}
        monkeypatch.setattr(bootstrap, "bundles", lambda: newer_bundles)
        async with connect(target(sshd, workspace), 30) as newer:
            assert older.hello.agent != newer.hello.agent
            assert sorted(path.name for path in sshd.cache.iterdir()) == sorted([older.hello.agent, newer.hello.agent])
            of_newer = await run(newer, older, "1")
            spec = json.loads((workspace / ".eagle_console" / "jobs" / of_newer / "spec.json").read_text())
            assert spec["schema"] == 2 and spec["of_the_future"] == {"deep": [1]}
            assert "newer version of the agent (schema 2)" in (await older.job(of_newer)).note
            assert "newer version" not in (await newer.job(of_newer)).note
            await run(older, newer, "2")


def _newer() -> Bundle:
    """The agent of a later version: its job records have a higher schema number and fields that we do not know."""
    import io
    import zipfile
    import zlib

    with zipfile.ZipFile(io.BytesIO(zlib.decompress(bundles()["any"].data))) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}
    schema = files["lib/remote/protocol/jobs.py"]
    files["lib/remote/protocol/jobs.py"] = schema.replace(b"SCHEMA = 1\n", b"SCHEMA = 2\n").replace(
        b"    forced: tuple[str, ...] = ()\n",
        b'    forced: tuple[str, ...] = ()\n    of_the_future: Any = field(default_factory=lambda: {"deep": [1]})\n',
    )
    assert files["lib/remote/protocol/jobs.py"] != schema
    return build(files)


async def test_a_host_of_another_processor_gets_the_bundle_without_compiled_parts(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage 1 on a machine that calls itself aarch64 asks for ``any``; that bundle runs, and says what it lacks."""
    source = bootstrap.stage1_source().replace(b"os.uname().machine", b"'aarch64'")
    monkeypatch.setattr(bootstrap, "stage1_source", lambda: source)
    async with connect(target(sshd), 30) as client:
        assert client.hello.agent == bundles()["any"].sha256[:12]
        assert not client.hello.psutil
        host = await client.host()
        assert host.memory_total and host.cpu_percent is not None
