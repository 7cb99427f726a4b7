"""The bootstrap without a network: real shells and interpreters, and hosts on which something is in the way."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from fixtures.interpreters import AGENT_VERSIONS, interpreter

from eagle_console.config import HostProfile
from eagle_console.link import bundle as bundle_module
from eagle_console.link.bootstrap import EXEC_LINE, NO_PYTHON, READY, start_agent
from eagle_console.link.bundle import Bundle, build, bundles
from eagle_console.link.connect import Target, connect, open_session, reach
from eagle_console.link.errors import BundleError, NoPython
from eagle_console.link.transport import LocalTransport
from remote import procfs
from remote.entry import stage1

SHELLS = ("sh", "bash", "dash", "zsh", "fish", "tcsh")


@pytest.fixture(autouse=True)
def host_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for the host's side: the local transport inherits this environment."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    return home


def only_python(directory: Path, python: Path, name: str = "python3") -> str:
    """A PATH on which one interpreter is found, under the given name, and the usual commands."""
    directory.mkdir()
    script = directory / name
    script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    return str(directory)


async def start_here() -> tuple[int, str]:
    """Starts an agent on this machine; bytes uploaded and the Python it runs on."""
    async with reach(Target(HostProfile("here", "local"))) as endpoint, open_session(endpoint) as connected:
        assert connected.session.hello.python == connected.bootstrap.python
        return connected.bootstrap.uploaded_bytes, connected.bootstrap.python


async def test_a_local_agent_answers_and_goes_with_the_session(tmp_path: Path) -> None:
    async with connect(Target(HostProfile("here", "local", workspace=str(tmp_path))), 30) as client:
        assert (await client.host()).cpus >= 1
        pid = client.hello.pid
        assert procfs.stat(pid)
        started = time.monotonic()
    assert not procfs.stat(pid)
    assert time.monotonic() - started < 2.0


@pytest.mark.system
@pytest.mark.parametrize("version", AGENT_VERSIONS)
async def test_it_runs_on_other_pythons(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", only_python(tmp_path / "bin", interpreter(version)))
    uploaded, python = await start_here()
    assert uploaded > 0
    assert python.startswith(version + ".")
    assert await start_here() == (0, python)


@pytest.mark.system
async def test_an_old_python3_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder = only_python(tmp_path / "bin", interpreter("3.8"))
    newer = tmp_path / "bin" / "python3.10"
    newer.write_text(f'#!/bin/sh\nexec "{interpreter("3.10")}" "$@"\n')
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", bin_folder)
    assert (await start_here())[1].startswith("3.10.")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_reads_the_line_alike(shell: str, tmp_path: Path) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    source = b"import os,sys;os.write(1,os.read(0,4)+sys.version[:1].encode())"
    environment = {**os.environ, "PATH": only_python(tmp_path / "bin", Path(sys.executable))}
    found = subprocess.run(
        [path, "-c", EXEC_LINE], input=b"%06d" % len(source) + source + b"more", env=environment, capture_output=True
    )
    assert found.stdout == f"\n{READY}\nmore3".encode(), found.stderr
    missing = subprocess.run(
        [path, "-c", EXEC_LINE], env={**environment, "PATH": "/nothing"}, capture_output=True, text=True
    )
    assert missing.stdout == f"\n{NO_PYTHON}\n"
    assert missing.returncode == 127


def test_the_line_has_nothing_that_shells_read_differently() -> None:
    assert EXEC_LINE.count("'") == 2
    assert not set("\\!\n\t`~") & set(EXEC_LINE)


def test_the_documentation_shows_the_line_for_forced_commands() -> None:
    assert EXEC_LINE in (Path(__file__).parents[2] / "docs" / "link.md").read_text().splitlines()


async def test_without_python_the_error_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(NoPython, match="here has no Python"):
        await start_here()


async def test_a_job_that_an_agent_started_outlives_its_link(tmp_path: Path) -> None:
    async with LocalTransport() as transport:
        channel = await transport.open("sleep 60 >/dev/null 2>&1 & echo $!; exec cat")
        pid = int(await channel.read_line(100))
        await channel.write(b"over\n")
        assert await channel.read_line(100) == b"over\n"
    try:
        assert procfs.stat(pid)
    finally:
        os.kill(pid, 9)


async def test_a_command_that_ignores_the_end_of_its_input_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_console.link.transport.CLOSE_SECONDS", 0.2)
    async with LocalTransport() as transport:
        channel = await transport.open("echo $$; exec sleep 60")
        pid = int(await channel.read_line(100))
    assert not procfs.stat(pid)
    assert await channel.wait() is None


def test_the_same_files_make_the_same_bundle() -> None:
    first, second = build({"b": b"2", "a": b"1"}), build({"a": b"1", "b": b"2"})
    assert first == second
    assert build({"a": b"1", "b": b"3"}).sha256 != first.sha256
    assert hashlib.sha256(zlib.decompress(first.data)).hexdigest() == first.sha256


def test_the_bundle_holds_both_packages_and_its_vendors_apart() -> None:
    names = set(zipfile.ZipFile(BytesIO(zlib.decompress(bundles()["any"].data))).namelist())
    assert {"run_agent.py", "run_job.py", "manifest.json", "vendor/pynvml.py"} <= names
    assert {"lib/remote/agent.py", "lib/remote/protocol/frames.py", "lib/pipeline/plan/catalog.py"} <= names
    assert "lib/pipeline/stages/serve.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc") or "psutil" in name]
    here = zipfile.ZipFile(BytesIO(zlib.decompress(bundles()[f"linux-{os.uname().machine}"].data))).namelist()
    assert "vendor/psutil/_psutil_linux.abi3.so" in here


def test_where_there_is_no_psutil_to_send_one_bundle_is_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module.sys, "platform", "darwin")
    assert list(bundles.__wrapped__()) == ["any"]


class TestStage1:
    """The functions of stage 1 on folders that are not as they should be."""

    uid = os.getuid()

    @pytest.fixture
    def archive(self) -> Bundle:
        return build({"run_agent.py": b"print('agent')\n", "lib/a.py": b"a = 1\n"})

    def test_the_source_is_complete_in_itself(self) -> None:
        assert "import remote" not in bundle_module.stage1_source().decode()
        assert "from remote" not in bundle_module.stage1_source().decode()
        assert len(bundle_module.stage1_source()) < 1_000_000

    def test_places_in_order(self, host_home: Path) -> None:
        last = [f"/dev/shm/eagle_console-{self.uid}", f"/tmp/eagle_console-{self.uid}"]
        home, ours = str(host_home), f"{host_home}/.cache/eagle_console/agents"
        assert stage1.places({"HOME": home}, self.uid) == [ours, *last]
        assert stage1.places({"HOME": home, "XDG_CACHE_HOME": "/c"}, self.uid)[0] == "/c/eagle_console/agents"
        assert stage1.places({"HOME": home, "XDG_CACHE_HOME": "c"}, self.uid)[0] == ours
        assert stage1.places({}, self.uid) == last
        assert stage1.places({"HOME": "/no/such/home"}, self.uid) == last

    def test_installed_once_then_found(self, archive: Bundle) -> None:
        assert stage1.find("abc", self.uid) is None
        directory = stage1.install(archive.data, archive.sha256, "abc", self.uid)
        assert stage1.find("abc", self.uid) == directory
        assert stage1.install(archive.data, archive.sha256, "abc", self.uid) == directory
        assert os.listdir(os.path.dirname(directory)) == ["abc"]

    def test_damage_on_the_way_is_noticed(self, archive: Bundle) -> None:
        with pytest.raises(stage1.Unusable, match="hash"):
            stage1.install(zlib.compress(b"something else"), archive.sha256, "abc", self.uid)
        with pytest.raises(stage1.Unusable, match="damaged"):
            stage1.install(archive.data[:-9], archive.sha256, "abc", self.uid)

    def test_damage_on_the_host_is_repaired(self, archive: Bundle) -> None:
        directory = stage1.install(archive.data, archive.sha256, "abc", self.uid)
        Path(directory, "lib", "a.py").write_text("")
        assert stage1.find("abc", self.uid) is None
        assert stage1.install(archive.data, archive.sha256, "abc", self.uid) == directory
        assert stage1.find("abc", self.uid) == directory
        assert not Path(directory, ".broken").exists()

    def test_folders_of_others_are_refused(self, tmp_path: Path) -> None:
        ours = tmp_path / "ours"
        ours.mkdir(mode=0o700)
        stage1.check_owner(str(ours), self.uid)
        with pytest.raises(stage1.Unusable, match="belongs to"):
            stage1.check_owner(str(ours), self.uid + 1)
        (tmp_path / "link").symlink_to(ours)
        with pytest.raises(stage1.Unusable, match="not a folder"):
            stage1.check_owner(str(tmp_path / "link"), self.uid)
        ours.chmod(0o777)
        with pytest.raises(stage1.Unusable, match="written by others"):
            stage1.check_owner(str(ours), self.uid)

    def test_a_place_of_somebody_else_is_passed_over(
        self, archive: Bundle, host_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked = host_home / ".cache" / "eagle_console" / "agents"
        blocked.mkdir(parents=True)
        blocked.chmod(0o777)
        other = tmp_path / "other"
        monkeypatch.setattr(stage1, "places", lambda environ, uid: [str(blocked), str(other)])
        assert stage1.install(archive.data, archive.sha256, "abc", self.uid) == str(other / "abc")
        monkeypatch.setattr(stage1, "places", lambda environ, uid: [str(blocked), "/proc/nothing"])
        with pytest.raises(stage1.Unusable, match=r"written by others; /proc/nothing"):
            stage1.install(archive.data, archive.sha256, "abc", self.uid)

    def test_old_bundles_go_unless_something_runs_from_them(self, tmp_path: Path) -> None:
        place = tmp_path / "agents"
        place.mkdir()
        long_ago = time.time() - 40 * 86400
        for number in range(6):
            (place / f"bundle{number}").mkdir()
            os.utime(place / f"bundle{number}", (long_ago + number, long_ago + number))
        runner = place / "bundle1" / "run_job.py"
        runner.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
        os.utime(place / "bundle1", (long_ago + 1, long_ago + 1))
        with subprocess.Popen(
            [sys.executable, "-I", str(runner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout
            process.stdout.readline()
            stage1.remove_old(str(place), "bundle5")
        assert sorted(os.listdir(place)) == ["bundle1", "bundle3", "bundle4", "bundle5"]

    def test_bundles_used_this_month_stay(self, tmp_path: Path) -> None:
        for number in range(6):
            (tmp_path / f"bundle{number}").mkdir()
        stage1.remove_old(str(tmp_path), "bundle5")
        assert len([entry for entry in tmp_path.iterdir() if entry.name.startswith("bundle")]) == 6


async def test_a_host_that_cannot_store_anything_is_a_bundle_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage 1 is sent with places that do not exist, as on a host where every disk is read-only."""
    source = bundle_module.stage1_source().replace(b'("/dev/shm", "/tmp")', b'("/proc", "/sys")')
    monkeypatch.setattr("eagle_console.link.bootstrap.stage1_source", lambda: source)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/cache")
    async with LocalTransport() as transport:
        with pytest.raises(BundleError, match=r"/proc/cache.*/proc/eagle.*/sys/eagle"):
            await start_agent(await transport.open(EXEC_LINE), "here")


@pytest.mark.system
async def test_a_mount_that_forbids_programs_costs_psutil_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled part of psutil does not load from a file system mounted noexec."""
    mount = tmp_path / "noexec"
    mount.mkdir()
    mounted = await _run("mount", "-t", "tmpfs", "-o", "noexec,size=16m", "tmpfs", str(mount))
    if mounted != 0:
        pytest.skip("mounting needs root")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(mount))
        async with connect(Target(HostProfile("here", "local")), 30) as client:
            assert client.hello.bundle_dir.startswith(str(mount))
            assert not client.hello.psutil
            assert (await client.host()).memory_total
    finally:
        await _run("umount", str(mount))


async def _run(*argv: str) -> int:
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()
