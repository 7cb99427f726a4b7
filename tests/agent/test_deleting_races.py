"""Races and mounts: what others do to the names during a deletion. Naive deletions are the failing controls."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.agent_process import ROOT
from agent.deletingkit import Bench, inodes, prune, refusal

from remote.disk.syscalls import Syscalls
from remote.protocol.artifacts import LEVEL_WHOLE
from remote.protocol.errors import RequestError

ROUNDS = int(os.environ.get("SWAP_ROUNDS", "1000"))

SWAPPER = """
import ctypes, os, platform, sys
number = {"x86_64": 316}.get(platform.machine(), 276)
libc, folder = ctypes.CDLL(None), os.open(sys.argv[1], os.O_RDONLY)
while True:
    libc.syscall(number, folder, b"out", folder, b"link", 2)
"""


@pytest.fixture
def swapper(tmp_path: Path) -> Iterator[Bench]:
    """A workspace in which ``out`` and a link to a foreign folder change their names all the time."""
    bench = Bench(tmp_path, epochs=0)
    bench.run.mkdir(parents=True)
    (bench.workspace / "link").symlink_to(bench.foreign)
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, str(bench.workspace)])
    try:
        yield bench
    finally:
        process.kill()
        process.wait()


def put(bench: Bench, name: str) -> None:
    """The same name in the run and in the foreign folder, whichever is ``out`` at the moment."""
    (bench.foreign / name).mkdir(exist_ok=True)
    (bench.foreign / name / "precious").write_bytes(b"p")
    made = bench.workspace / f".made-{name}"
    made.mkdir()
    (made / "weights").write_bytes(b"w")
    while True:
        for holder in ("out", "link"):
            path = bench.workspace / holder
            if not path.is_symlink():
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                except OSError:
                    continue
                os.rename(made, name, dst_dir_fd=descriptor)
                os.close(descriptor)
                return


def test_a_swapped_parent_loses_nothing_foreign(swapper: Bench) -> None:
    moved = lost = 0
    engine = swapper.engine()
    for number in range(ROUNDS):
        name = str(number)
        put(swapper, name)
        try:
            receipt = prune(engine, engine.plan([f"out/{name}"], LEVEL_WHOLE))
            moved += receipt.state == "trashed"
        except RequestError:
            pass
        lost += not (swapper.foreign / name / "precious").exists()
    assert lost == 0 and moved > ROUNDS / 50, (moved, lost)


def test_the_naive_way_loses_foreign_things(swapper: Bench) -> None:
    """The control: a check of the resolved path and then a deletion by that path's name."""
    lost = 0
    for number in range(4000):
        name = str(number)
        put(swapper, name)
        path = swapper.workspace / "out" / name
        with contextlib.suppress(OSError):  # resolving can meet the exchange too
            if os.path.realpath(path).startswith(str(swapper.workspace)):
                shutil.rmtree(path, ignore_errors=True)
        lost += not (swapper.foreign / name / "precious").exists()
        if lost:
            return
    pytest.fail("the naive way lost nothing: this rig does not race")


def test_a_swapped_item_is_put_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    foreign = inodes(bench.foreign)

    class Swapping(Syscalls):
        def rename(self, directory: int, name: str, target_directory: int, target: str) -> None:
            if name == "0" and bench.foreign.exists():
                (bench.run / "0").rename(bench.workspace / "mine")
                bench.foreign.rename(bench.run / "0")
            super().rename(directory, name, target_directory, target)

    engine = bench.engine(Swapping())
    assert "back in its place" in refusal(prune, engine, engine.plan(["out/0"], LEVEL_WHOLE)).message
    assert inodes(bench.run / "0") == foreign and bench.trash() == []


def test_openers_wait_milliseconds_and_break_nothing(tmp_path: Path) -> None:
    """Others open the files while they are leased: we live on, and they wait less than 50 ms."""
    bench = Bench(tmp_path, epochs=1)
    for number in range(200):
        (bench.run / "0" / f"{number:03d}").write_bytes(b"x")
    waits: list[float] = []
    ended = threading.Event()
    code = (
        "import os, sys, time\n"
        "worst = 0.0\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end:\n"
        "    begin = time.monotonic()\n"
        "    try: os.close(os.open(sys.argv[1], os.O_RDONLY))\n"
        "    except FileNotFoundError: pass\n"
        "    worst = max(worst, time.monotonic() - begin)\n"
        "    time.sleep(0.0005)\n"
        "print(worst)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(bench.run / "0" / "007")], stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline()
    engine = bench.engine()
    rounds = 0
    while process.poll() is None:
        try:
            plan = engine.plan(["out/0"], LEVEL_WHOLE)
            engine.undo(prune(engine, plan).id, "tester")
        except RequestError:
            pass  # the other one had it open
        rounds += 1
    waits.append(float(process.stdout.read()))
    process.stdout.close()
    ended.set()
    assert rounds > 3 and waits[0] < 0.25, waits  # 50 ms on a quiet machine: `python -m bench.deleting`


def test_a_broken_lease_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    code = (
        "import os, sys, time\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from remote.disk.syscalls import Syscalls\n"
        "descriptor = os.open(sys.argv[1], os.O_RDONLY)\n"
        "Syscalls().lease(descriptor)\n"
        "print('leased', flush=True)\n"
        "sys.stdin.readline()\n"
        "Syscalls().unlease(descriptor)\n"
        "print('alive', flush=True)\n"
    )
    argv = [sys.executable, "-c", code, str(path), str(ROOT)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "leased\n"
        with pytest.raises(BlockingIOError):  # this breaks the lease: the kernel signals its holder
            os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        time.sleep(0.05)
        if process.poll() is None:
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.read() == "alive\n"
    assert process.returncode == 0 != -signal.SIGIO


# Mounts: in a mount namespace of their own, as root.


def in_namespace(script: str, *arguments: object) -> str:
    """Runs Python in a mount namespace of its own; skips where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("mounting needs root, unshare and mount")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this place allows no mount namespace")
    prelude = (
        "import os, shutil, subprocess, sys; from pathlib import Path\n"
        "from agent.deletingkit import Bench, fill, inodes, prune, refusal\n"
        "from remote.protocol.artifacts import *\n"
        "def mount(*words):\n"
        "    subprocess.run(['mount', *map(str, words)], check=True)\n"
        "here = Path(sys.argv[1])\n"
    )
    argv = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", prelude + script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
def test_a_bind_mount_stops_it_before_and_after_the_plan(tmp_path: Path) -> None:
    """The control: shutil.rmtree sees no mount of the same file system and empties what lies behind it."""
    script = """
bench = Bench(here)
(bench.run / '0' / 'sub').mkdir()
engine = bench.engine()
plan = engine.plan(['out/0'], 'whole')
mount('--bind', bench.foreign, bench.run / '0' / 'sub')
assert 'mounted' in refusal(prune, engine, plan).message
assert 'mounted' in refusal(engine.plan, ['out/0'], 'whole').message
assert 'mount' in refusal(engine.plan, ['out/0/sub'], 'whole').message
assert 'mount' in refusal(engine.plan, ['out/0/sub/config.json'], 'whole').message
(bench.run / '1' / 'file').touch()
mount('--bind', bench.foreign / 'config.json', bench.run / '1' / 'file')
assert 'mounted' in refusal(engine.plan, ['out/1'], 'whole').message
assert len(os.listdir(bench.foreign)) == 4
receipt = prune(engine, engine.plan(['out/2'], 'whole'))
[name] = bench.trash()
(bench.workspace / '.eagle_trash' / name / 'm').mkdir()
mount('--bind', bench.foreign, bench.workspace / '.eagle_trash' / name / 'm')
after = engine.purge(receipt.id, 'x').receipts[0]
assert after.state == 'trashed', after
assert len(os.listdir(bench.foreign)) == 4
shutil.rmtree(bench.run / '0', ignore_errors=True)
print(len(os.listdir(bench.foreign)))
"""
    assert in_namespace(script, tmp_path) == "0\n", "the control lost nothing: the rig mounts nothing"


@pytest.mark.system
def test_a_mount_that_comes_during_a_purge_is_not_emptied(tmp_path: Path) -> None:
    script = """
from remote.disk.syscalls import Syscalls
bench = Bench(here)
(bench.run / '0' / 'sub').mkdir()
class Mounting(Syscalls):
    done = False
    def unlink(self, directory, name):
        if not self.done:
            self.done = True
            [held] = bench.trash()
            mount('--bind', bench.foreign, bench.workspace / '.eagle_trash' / held / 'sub')
        super().unlink(directory, name)
engine = bench.engine(Mounting())
receipt = prune(engine, engine.plan(['out/0'], 'whole'))
after = engine.purge(receipt.id, 'x').receipts[0]
print(after.state, len(os.listdir(bench.foreign)), after.items[0].problem)
"""
    assert in_namespace(script, tmp_path).startswith("purging 4 "), "a mount was crossed"


@pytest.mark.system
def test_a_full_disk_can_be_freed(tmp_path: Path) -> None:
    script = """
(here / 'mnt').mkdir()
with open(here / 'image', 'wb') as image:
    image.truncate(64 << 20)
subprocess.run(['mkfs.ext4', '-q', '-m', '0', str(here / 'image')], check=True)
mount('-o', 'loop', here / 'image', here / 'mnt')
bench = Bench(here / 'mnt', 3, 2_000_000)
engine = bench.engine()
engine.prepare()
try:
    with open(bench.workspace / 'ballast', 'wb', buffering=0) as file:
        while file.write(bytes(1 << 16)): pass
except OSError as error:
    assert error.errno == 28, error
try:
    with open(bench.workspace / 'last', 'wb', buffering=0) as file:
        while file.write(bytes(64)): pass
except OSError: pass
receipt = prune(engine, engine.plan(['out/0', 'out/1'], 'whole'))
assert receipt.state == 'trashed' and len(receipt.items) == 2, receipt
assert engine.undo(receipt.id, 'x').state == 'restored'
receipt = prune(engine, engine.plan(['out/0', 'out/1'], 'whole'))
freed = engine.purge(receipt.id, 'x').receipts[0].freed
assert engine.journal(None, None).broken is None
print(freed.unlinked == freed.planned, abs(freed.filesystem - freed.unlinked) < 1 << 20)
subprocess.run(['umount', str(here / 'mnt')], check=True)
"""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    assert in_namespace(script, tmp_path) == "True True\n"


@pytest.mark.system
def test_read_only_overlay_and_unknown_file_systems(tmp_path: Path) -> None:
    script = """
bench = Bench(here / 'a')
engine = bench.engine()
plan = engine.plan(['out/0'], 'whole')
mount('--bind', bench.workspace, bench.workspace)
assert 'plan again' in refusal(prune, engine, plan).message
mount('-o', 'remount,ro,bind', bench.workspace)
assert 'read-only' in refusal(engine.plan, ['out/0'], 'whole').message
for name in ('lower', 'upper', 'work', 'merged'):
    (here / name).mkdir()
(here / 'lower' / 'out' / '0').mkdir(parents=True)
(here / 'lower' / 'out' / '0' / 'w').write_bytes(b'x')
layers = f'lowerdir={here}/lower,upperdir={here}/upper,workdir={here}/work'
mount('-t', 'overlay', 'overlay', '-o', layers, here / 'merged')
fill(here / 'merged' / 'ws' / 'thing')
bench.workspace = here / 'merged' / 'ws'
engine = bench.engine()
plan = engine.plan(['thing'], 'whole')
assert plan.items[0].proof == 'namespace' and plan.confirm and 'container' in plan.unseen
assert plan.confirm in refusal(engine.prune, plan.id, plan.fingerprint, '', 'x', None).remedy
with open(here / 'merged' / 'ws' / 'thing' / 'config.json'):
    assert 'in use' in refusal(engine.plan, ['thing'], 'whole').message
plan = engine.plan(['thing'], 'whole')
receipt = prune(engine, plan)
assert engine.undo(receipt.id, 'x').state == 'restored'
(here / 'ram').mkdir()
mount('-t', 'ramfs', 'ramfs', here / 'ram')
fill(here / 'ram' / 'ws' / 'thing')
bench.workspace = here / 'ram' / 'ws'
assert 'ramfs' in refusal(bench.engine().plan, ['thing'], 'whole').message
print('done')
"""
    assert in_namespace(script, tmp_path) == "done\n"


@pytest.mark.system
def test_another_user(tmp_path: Path) -> None:
    """A user without root works on files of its own, and touches nobody else's."""
    if os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    bench = Bench(tmp_path)
    for path in [bench.workspace, *bench.workspace.rglob("*")]:
        os.chown(path, 65534, 65534)
    os.chown(bench.run / "1" / "config.json", 0, 0)
    assert "belongs to the user 65534" in refusal(bench.engine().plan, ["out/0"], LEVEL_WHOLE).message
    for folder in tmp_path.parents:
        if folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            engine = bench.engine()
            assert "belongs to the user 0" in refusal(engine.plan, ["out/1"], LEVEL_WHOLE).message
            receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
            assert engine.undo(receipt.id, "x").state == "restored"
            receipt = prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
            assert engine.purge(receipt.id, "x").receipts[0].state == "purged"
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "user 65534" in refusal(bench.engine().pin, "out/1", True, "root").message
