"""Odd accounts and machines: another user, hidden processes, no name, few processes, odd names, and secrets at work."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fixtures import ml_environment
from fixtures.nvml import FakeNvml, gpus
from link.odd_host import Asker
from link.sshd import SshServer, introduce, target

from eagle_console import cli
from eagle_console.client import HostClient
from eagle_console.link.connect import connect
from remote import procfs
from remote.protocol.codec import from_wire
from remote.protocol.frames import TOPIC_JOBS
from remote.protocol.jobs import ELSEWHERE, ENDED_STATES, READY, STOPPED, Job, JobList
from remote.protocol.stages import LaunchRequest, StageContext

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]

NOBODY = 65534
NAMELESS = 54321  # an id without an entry in the user database
PUBLIC_PYTHON = Path("/usr/bin/python3")

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not PUBLIC_PYTHON.exists(), reason="another user needs root and a Python of the system"
)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="eagle_console-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def host(start_sshd: StartSshd, console_home: Path, public: Path) -> Callable[..., SshServer]:
    """Starts a server whose sessions begin with the given lines of shell, which may run ``"$@"`` in their own way."""

    def start(*lines: str, **options: object) -> SshServer:
        wrapper = public / "session"
        words = ["#!/bin/bash", "set -e", 'set -- /bin/bash -c "$SSH_ORIGINAL_COMMAND"', *lines, 'exec "$@"']
        wrapper.write_text("\n".join(words) + "\n")
        wrapper.chmod(0o755)
        server = start_sshd(config=f"ForceCommand exec unshare -m {wrapper}", **options)
        introduce(server, console_home)
        return server

    return start


def become(uid: int) -> str:
    return f'set -- setpriv --reuid {uid} --regid {uid} --clear-groups "$@"'


@asynccontextmanager
async def running(client: HostClient, folder: Path, python: Path | None = None) -> AsyncIterator[Job]:
    """A job that is ready inside the context and stopped after it."""
    with pytest.MonkeyPatch.context() as patch:
        if python is not None:
            patch.setattr(sys, "executable", str(python))
        interpreter, verifier = ml_environment.make(folder)
    context = StageContext(verifier=str(verifier), python=str(interpreter))
    launched = await client.launch(LaunchRequest("serve", {"port": ml_environment.free_port()}, context), key="k")
    try:
        job = await until(client, launched.id, READY, *ENDED_STATES)
        assert job.state == READY, job
        yield job
    finally:
        await client.stop(launched.id, requested_by="the test", force=True)
        assert (await until(client, launched.id, *ENDED_STATES)).state == STOPPED


async def until(client: HostClient, job_id: str, *states: str) -> Job:
    async with asyncio.timeout(30):
        async for event in client.session.subscribe(TOPIC_JOBS, 0.5):
            for job in from_wire(JobList, event.data).jobs:
                if job.id == job_id and job.state in states:
                    return job
    raise AssertionError("the subscription ended")


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def contents(*folders: Path) -> dict[str, bytes]:
    """Every file below the folders."""
    return {str(path): path.read_bytes() for root in folders for path in root.rglob("*") if path.is_file()}


@needs_root
async def test_another_user_who_sees_no_processes_but_his_own(host: Callable[..., SshServer], public: Path) -> None:
    """An account without privileges where /proc is mounted with hidepid=2: a whole job, from launch to stop."""
    home, workspace = public / "home", public / "workspace"
    for folder in (home, workspace):
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    server = host(
        "mount -t proc -o hidepid=2 proc /proc",
        f"export HOME={home}; unset XDG_CACHE_HOME",
        become(NOBODY),
        path="/usr/sbin:/usr/bin:/bin",
    )
    async with connect(target(server, workspace), 30) as client:
        assert client.hello.user == "nobody"
        assert client.hello.bundle_dir.startswith(str(home))
        assert (await client.host()).memory_total
        assert (await client.disk()).problem == ""
        async with running(client, public, PUBLIC_PYTHON) as job:
            assert job.pids and {procfs.owner(pid) for pid in job.pids} == {NOBODY}
            directory = workspace / ".eagle_console" / "jobs" / job.id
            for path in (directory, *directory.iterdir()):
                assert path.stat().st_uid == NOBODY
                assert not stat.S_IMODE(path.stat().st_mode) & 0o022, f"others can write to {path}"


@needs_root
async def test_an_account_without_name_and_home(host: Callable[..., SshServer]) -> None:
    server = host("unset HOME XDG_CACHE_HOME USER LOGNAME", become(NAMELESS), path="/usr/sbin:/usr/bin:/bin")
    async with connect(target(server), 30) as client:
        assert client.hello.user == str(NAMELESS)
        assert client.hello.bundle_dir.startswith((f"/dev/shm/eagle_console-{NAMELESS}/", "/tmp/"))
        shutil.rmtree(Path(client.hello.bundle_dir).parent)


@needs_root
@pytest.mark.parametrize(
    ("processes", "code", "sentence"),
    [(1, 3, "ended the command that starts the agent"), (2, 1, "lets the user start no further thread")],
)
def test_an_account_that_may_start_few_processes(
    host: Callable[..., SshServer],
    capfd: pytest.CaptureFixture[str],
    public: Path,
    processes: int,
    code: int,
    sentence: str,
) -> None:
    (public / "home").mkdir()
    os.chown(public / "home", NAMELESS, NAMELESS)
    server = host(
        f"export HOME={public}/home; unset XDG_CACHE_HOME",
        become(NAMELESS),
        f'set -- prlimit --nproc={processes} "$@"',
        path="/usr/sbin:/usr/bin:/bin",
    )
    answer = Asker(capfd)(server, "jobs")
    assert (answer.code, sentence in answer.words) == (code, True), answer


async def test_a_container_whose_driver_gives_the_host_s_pids(
    start_sshd: StartSshd, console_home: Path, fake_nvml: FakeNvml
) -> None:
    """A pid that /proc does not show stays a pid with its memory; it borrows no name."""
    strange = 4_194_303  # the largest pid that a kernel can be told to give
    fake_nvml.install().write(*gpus(1), f"proc 0 {strange} 700", f"proc 0 {os.getpid()} 600")
    server = start_sshd(environment=fake_nvml.environment)
    introduce(server, console_home)
    async with connect(target(server), 30) as client:
        (gpu,) = (await client.gpus()).gpus
        assert gpu.processes is not None
        rows = {process.pid: process for process in gpu.processes}
        assert rows[strange].memory == 700 * 2**20
        assert (rows[strange].name, rows[strange].user, rows[strange].job) == (None, None, None)
        assert rows[os.getpid()].user == our_name()


def our_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"gpu\xff\xfe-\x80", "gpu\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}-\N{REPLACEMENT CHARACTER}"),
        (b"x" * 64, "x" * 64),
        ("größte-kiste".encode(), "größte-kiste"),
        (b"a\x1b[31mb c", "ab c"),
    ],
)
@needs_root
def test_odd_host_names(
    host: Callable[..., SshServer], capfd: pytest.CaptureFixture[str], name: bytes, shown: str
) -> None:
    octal = "".join(f"\\{byte:03o}" for byte in name)
    server = host(f'set -- unshare -u sh -c \'printf "{octal}" >/proc/sys/kernel/hostname; exec "$@"\' - "$@"')
    answer = Asker(capfd)(server)
    assert answer.hello["host"].encode("utf-8", "surrogateescape") == name
    assert cli.main(["status", server.address]) == 0
    assert f"@{shown} " in capfd.readouterr().out


@needs_root
async def test_a_machine_without_an_id_is_known_by_its_name(host: Callable[..., SshServer], tmp_path: Path) -> None:
    server = host("mount --bind /dev/null /etc/machine-id")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with connect(target(server, workspace), 30) as client:
        assert client.hello.machine_id == f"host:{socket.gethostname()}"
        async with running(client, tmp_path) as job:
            assert job.state == READY
    async with connect(target(server, workspace), 30) as client:
        (known,) = (await client.jobs()).jobs
        assert known.state == STOPPED


@needs_root
async def test_a_job_of_another_machine_on_a_shared_disk(
    host: Callable[..., SshServer], start_sshd: StartSshd, console_home: Path, tmp_path: Path
) -> None:
    other = start_sshd("other")
    introduce(other, console_home)
    (tmp_path / "id").write_text("0123456789abcdef0123456789abcdef\n")
    server = host(f"mount --bind {tmp_path}/id /etc/machine-id")
    (other.directory / "authorized_keys").write_text(server.identity.with_suffix(".pub").read_text())
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with (
        connect(target(server, workspace), 30) as here,
        connect(target(other, workspace), 30) as there,
        running(here, tmp_path) as job,
    ):
        assert (await there.job(job.id)).state == ELSEWHERE


@pytest.mark.parametrize(
    ("name", "locale"),
    [
        ('it\'s "quoted" in spaces', "export LC_ALL=POSIX"),
        ("two\nlines", "export LC_ALL=C"),
        ("größe-日本", "export LC_ALL=C"),
        ("größe-日本", "unset LC_ALL LANG LC_CTYPE"),
        ("größe-日本", "export LC_ALL=xx_YY.ISO-8859-1"),
        ("$(touch pwned) `touch pwned`; touch pwned", ""),
        ("-rf %s[/]", ""),
    ],
)
async def test_odd_names_of_the_workspace(sshd: SshServer, tmp_path: Path, name: str, locale: str) -> None:
    (sshd.home / ".bashrc").write_text(locale + "\n")
    workspace = tmp_path / name
    (workspace / os.fsdecode(b"out\xff\xfe")).mkdir(parents=True)
    async with connect(target(sshd, workspace), 30) as client:
        assert client.hello.workspace == str(workspace)
        (entry,) = (await client.disk()).entries
        assert entry.name == r"out\xff\xfe"
        async with running(client, tmp_path) as job:
            assert (await client.read_log(job.id, tail=5)).lines
    assert "pwned" not in names_below(tmp_path)


async def test_secrets_reach_a_stage_by_inheritance_and_are_written_nowhere(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_host, of_console = "hf_" + "HostSecret" * 3, "hf_" + "ConsoleSecret" * 3
    monkeypatch.setenv("HF_TOKEN", of_console)
    server = start_sshd(environment={"HF_TOKEN": of_host})
    introduce(server, console_home)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with connect(target(server, workspace), 30) as client:
        agent = client.hello.pid
        async with running(client, tmp_path) as job:
            (runner,) = {record.parent for record in map(procfs.stat, job.pids[:1]) if record}
            for pid in (runner, *job.pids):
                assert of_host in environment(pid)
                assert of_console not in environment(pid)
            listing = "\n".join(procfs.command_line(pid) or "" for pid in procfs.table())
            assert job.id in listing
            assert of_host not in listing and of_console not in listing
            assert of_console not in environment(agent)
            answers = [await client.job(job.id), await client.jobs(), await client.gpus(), client.hello]
            assert of_host not in repr(answers)
    written = contents(workspace, server.home, console_home)
    assert f"{workspace}/.eagle_console/jobs/{job.id}/spec.json" in written
    for path, content in written.items():
        assert of_host.encode() not in content and of_console.encode() not in content, path
