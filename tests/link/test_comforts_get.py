"""``get`` as a user runs it: over a real sshd, with losses, changes, full disks and names that mean harm."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from link.sshd import SshServer

from eagle_console.client import HostClient
from eagle_console.config import HostProfile
from eagle_console.link.connect import Target, connect
from eagle_console.transfer import download as downloads
from eagle_console.transfer import manifest as manifests
from eagle_console.transfer.download import Download
from eagle_console.transfer.manifest import Manifest
from eagle_console.transfer.place import Place, destination
from eagle_console.transfer.progress import Progress
from remote.procfs import machine_id
from remote.protocol.errors import CONFLICT, FAILED, REFUSED, RequestError

pytestmark = pytest.mark.system


@dataclass(frozen=True)
class Console:
    """A user's home and working directory; the host is the given address."""

    home: Path
    here: Path
    address: str

    def start(self, *words: str) -> subprocess.Popen[str]:
        names = ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        command = [sys.executable, "-m", "eagle_console.cli", "get", self.address, *words]
        pipe = subprocess.PIPE
        environment = {**kept, "HOME": str(self.home), "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.Popen(
            command, env=environment, cwd=self.here, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err


@pytest.fixture
def console(sshd: SshServer, console_home: Path, tmp_path: Path) -> Console:
    here = tmp_path / "here"
    here.mkdir()
    return Console(console_home, here, sshd.address)


def random_file(path: Path, size: int) -> str:
    data = os.urandom(size)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_a_file_over_ssh(console: Console, tmp_path: Path) -> None:
    source = tmp_path / "model.safetensors"
    digest = random_file(source, 30_000_001)
    os.utime(source, ns=(1, 1_700_000_000_123_456_789))
    code, out, err = console(str(source), "--json")
    assert code == 0, err
    document = json.loads(out)
    copy = console.here / "model.safetensors"
    assert document["destination"] == str(copy) and document["fetched"] == document["size"] == 30_000_001
    assert document["files"] == [{"path": "", "size": 30_000_001, "sha256": digest}]
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == digest
    assert copy.stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert "100%" in err and sorted(path.name for path in console.here.iterdir()) == ["model.safetensors"]

    code, _, err = console(str(source))
    assert code == 5 and "is there already" in err
    random_file(source, 1000)
    assert console(str(source), "--force")[0] == 0
    assert copy.read_bytes() == source.read_bytes()


def test_a_directory_with_links_holes_and_nothing(console: Console, tmp_path: Path) -> None:
    source = tmp_path / "run"
    (source / "epoch" / "deep").mkdir(parents=True)
    random_file(source / "epoch" / "model", 1_000_000)
    random_file(source / "epoch" / "deep" / "größe", 10)
    (source / "empty").write_bytes(b"")
    with (source / "sparse").open("wb") as sparse:
        sparse.truncate(50_000_000)
        sparse.seek(20_000_000)
        sparse.write(b"data")
    (source / "link").symlink_to("/etc/passwd")
    code, out, err = console(str(source), "copy", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["left_out"] == 1 and len(document["files"]) == 4
    (source / "link").unlink()
    compared = subprocess.run(["diff", "-r", source, console.here / "copy"], capture_output=True, text=True)
    assert compared.returncode == 0, compared.stdout
    assert (console.here / "copy" / "sparse").stat().st_blocks * 512 < 2_000_000
    code, _, err = console(str(source), "copy/", "--json")  # an existing directory: into it, like cp
    assert code == 0 and (console.here / "copy" / "run" / "empty").exists()
    code, _, err = console(str(source), "copy", "--force")
    assert code == 0 and not (console.here / "run").exists()


def test_it_goes_on_over_a_lost_link(console: Console, sshd: SshServer, tmp_path: Path) -> None:
    source = tmp_path / "export"
    digest = random_file(source, 120_000_000)
    getting = console.start(str(source), "--json")
    part = console.here / "export.part"
    _until(lambda: part.exists() and part.stat().st_size > 5_000_000)
    sshd.drop_connections()
    out, err = getting.communicate(timeout=90)
    assert getting.returncode == 0, err
    assert "connection lost" in err and json.loads(out)["files"][0]["sha256"] == digest
    assert hashlib.sha256((console.here / "export").read_bytes()).hexdigest() == digest


def test_it_goes_on_where_a_killed_one_stopped(console: Console, tmp_path: Path) -> None:
    source = tmp_path / "export"
    digest = random_file(source, 120_000_000)
    getting = console.start(str(source))
    part = console.here / "export.part"
    _until(lambda: part.exists() and part.stat().st_size > 10_000_000)
    getting.kill()
    getting.communicate()
    there = part.stat().st_size
    assert 10_000_000 < there < 120_000_000
    code, out, err = console(str(source), "--json")
    document = json.loads(out)
    assert code == 0 and document["kept"] == there and document["fetched"] == 120_000_000 - there
    assert document["files"][0]["sha256"] == digest and "going on with" in err
    assert hashlib.sha256((console.here / "export").read_bytes()).hexdigest() == digest


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# The parts, on this machine through the local transport: what happens between two steps can be chosen.


@pytest.fixture
def here(tmp_path: Path, console_home: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


Work = Callable[[HostClient], Awaitable[Any]]


async def locally(work: Work) -> Any:
    async with connect(Target(HostProfile("local", "local")), 30) as client:
        return await work(client)


async def get(client: HostClient, source: Path, place: Place, kept_before: int = -1) -> Download:
    manifest = await manifests.make(client, "local", str(source))
    kept = place.prepare(manifest)
    download = Download(manifest, place.part, kept, Progress(manifest.size))
    try:
        await download.run(client)
    finally:
        download.close()
    place.finish(manifest)
    if kept_before >= 0:
        assert download._progress.kept == kept_before
    return download


def left_over(source: Path, place: Place, data: bytes, **changes: Any) -> None:
    """An unfinished copy with these bytes, of the source as it is or with another identity."""
    status = source.stat()
    identity = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, **changes}
    document = {
        "host": "another name", "machine": machine_id(), "root": str(source), "directory": False, "left_out": 0,
        "schema": 1, "entries": [{"path": "", "identity": identity, "allocated": 0}],
    }  # fmt: skip
    place.part.write_bytes(data)
    manifests.sidecar(place.part).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("part", "changes", "kept"),
    [
        (lambda data: data[:70_000_000], {}, 70_000_000),
        (lambda data: data, {}, 80_000_000),
        (lambda data: data + b"more", {}, 80_000_000),
        (lambda data: data[:68_000_000] + b"x" + data[68_000_001:70_000_000], {}, 64 * 1024 * 1024),
        (lambda data: b"x" + data[1:1000], {}, 0),
        (lambda data: data[:1000], {"mtime_ns": 5}, 0),
        (lambda data: data[:1000], {"size": 5}, 0),
        (lambda data: data[:1000], {"inode": 5}, 0),
    ],
)
async def test_what_is_left_over_is_kept_only_where_it_is_the_hosts(
    here: Path, tmp_path: Path, part: Callable[[bytes], bytes], changes: dict[str, int], kept: int
) -> None:
    source, data = tmp_path / "source", os.urandom(80_000_000)
    source.write_bytes(data)
    place = Place(here / "copy", force=False)
    left_over(source, place, part(data), **changes)
    await locally(lambda client: get(client, source, place, kept_before=kept))
    assert (here / "copy").read_bytes() == data
    assert os.listdir(here) == ["copy"]


async def test_a_part_that_nobody_explains_is_left_alone(here: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"new")
    (here / "copy.part").write_bytes(b"mine")
    with pytest.raises(RequestError) as error:
        await locally(lambda client: get(client, source, Place(here / "copy", force=False)))
    assert error.value.code == REFUSED and (here / "copy.part").read_bytes() == b"mine"


@pytest.mark.parametrize("change", ["grows", "shrinks", "is replaced", "is rewritten"])
async def test_a_file_that_changes_under_it(
    here: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(20_000_000))
    store = downloads._store
    changed = False

    def meddling(file: Any, chunk: Any) -> None:
        nonlocal changed
        store(file, chunk)
        if not changed:
            changed = True
            if change == "grows":
                with source.open("ab") as log:
                    log.write(b"more")
            elif change == "shrinks":
                os.truncate(source, 500_000)
            elif change == "is replaced":
                shutil.copy(source, tmp_path / "other")
                os.replace(tmp_path / "other", source)
            else:
                source.write_bytes(os.urandom(20_000_000))

    monkeypatch.setattr(downloads, "_store", meddling)
    with pytest.raises(RequestError, match="changed while it was fetched") as error:
        await locally(lambda client: get(client, source, Place(here / "copy", force=False)))
    assert error.value.code == CONFLICT and not (here / "copy").exists()


async def test_no_room_here(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2_000_000))
    place = Place(here / "copy", force=False)
    usage = type("Usage", (), {"free": 1_000_000})()
    monkeypatch.setattr("eagle_console.transfer.place.shutil.disk_usage", lambda path: usage)
    with pytest.raises(RequestError, match="are free here") as error:
        await locally(lambda client: get(client, source, place))
    assert error.value.code == FAILED and not place.part.exists()
    monkeypatch.undo()

    real, calls = os.pwrite, 0

    def full(descriptor: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise OSError(28, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr("eagle_console.transfer.localfile.os.pwrite", full)
    with pytest.raises(RequestError, match="No space left on device") as error:
        await locally(lambda client: get(client, source, place))
    assert "goes on where it stopped" in error.value.remedy
    monkeypatch.undo()
    kept = place.part.stat().st_size
    assert kept > 0
    await locally(lambda client: get(client, source, place, kept_before=kept))


async def test_wrong_bytes_on_the_way_are_noticed(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(1_000_000))

    async def corrupt(self: HostClient, path: str, offset: int, length: int, real: Any = HostClient.read_file) -> Any:
        chunk = await real(self, path, offset, length)
        return replace(chunk, data=b"?" + chunk.data[1:])

    monkeypatch.setattr(HostClient, "read_file", corrupt)
    with pytest.raises(RequestError, match="not the same here and on the host"):
        await locally(lambda client: get(client, source, Place(here / "copy", force=False)))
    assert not (here / "copy").exists()


HOSTILE = (
    "../up", "a/../../up", "/etc/passwd", "a//b", ".", "..", "", "a\nb", "\x1b[2J", "a\0b", "back\\slash", "\udcff",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="nothing was fetched") as error:
        manifests.check_names(["fine/name", name])
    assert error.value.code == REFUSED and "\x1b" not in error.value.message and "\n" not in error.value.message


def test_names_twice_are_refused_and_honest_ones_are_not() -> None:
    with pytest.raises(RequestError, match="twice"):
        manifests.check_names(["a/b", "a/b"])
    manifests.check_names(["a/b", "größe", "..hidden", "a...b", "模型/权重"])


async def test_a_hostile_host_writes_nothing(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    (source / "x").write_bytes(b"evil")

    async def lying(self: HostClient, path: str, after: Any = None, real: Any = HostClient.list_files) -> Any:
        page = await real(self, path, after)
        return replace(page, entries=tuple(replace(entry, path="../../escaped") for entry in page.entries))

    monkeypatch.setattr(HostClient, "list_files", lying)
    with pytest.raises(RequestError, match="lead out of the destination"):
        await locally(lambda client: get(client, source, Place(here / "copy", force=False)))
    assert not (tmp_path / "escaped").exists() and not os.listdir(here)


async def test_two_names_that_are_one_here(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    for name in ("Model", "model"):
        (source / name).write_bytes(name.encode())

    def folded(self: Manifest, part: Path, entry: Any) -> Path:  # as on a file system that folds case
        return part / entry.path.lower()

    monkeypatch.setattr(Manifest, "local_path", folded)
    with pytest.raises(RequestError, match="two of the host's names are one here"):
        await locally(lambda client: get(client, source, Place(here / "copy", force=False)))


def test_destinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert destination("/data/run/", None) == Path("run")
    assert destination("/data/run", "folder") == Path("folder/run")
    assert destination("/data/run", "other") == Path("other")
    for path in ("/", "/data/..", "~"):
        if path == "~":
            assert destination(path, "x") == Path("x")
            continue
        with pytest.raises(RequestError, match="no name to use"):
            destination(path, None)
    with pytest.raises(RequestError, match="there is no directory"):
        destination("/data/run", "missing/other")


async def test_many_small_files_come_side_by_side(here: Path, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    for number in range(700):
        (source / f"{number % 7}").mkdir(parents=True, exist_ok=True)
        (source / f"{number % 7}" / f"{number}.pt").write_bytes(os.urandom(500))
    download = await locally(lambda client: get(client, source, Place(here / "copy", force=False)))
    assert len(download.digests) == 700
    compared = await asyncio.to_thread(subprocess.run, ["diff", "-r", source, here / "copy"], check=False)
    assert compared.returncode == 0
