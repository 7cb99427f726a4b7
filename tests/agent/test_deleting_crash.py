"""Every step of prune, undo and purge is cut off, by SIGKILL and by errors of the disk: each item is then wholly in its
place or wholly in the trash, and what is asked for next works."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from agent.deletingkit import EPOCH, Bench, Failing, Killed, inodes, prune

from remote.disk.deletion import Deletion
from remote.disk.syscalls import Syscalls
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.errors import RequestError

Work = Callable[[Deletion], None]
ITEMS = ("out/0", "out/1")


def pruning(level: str) -> tuple[Work, Work]:
    def work(engine: Deletion) -> None:
        prune(engine, engine.plan(ITEMS, level))

    return (lambda engine: None), work


def undoing(level: str) -> tuple[Work, Work]:
    def before(engine: Deletion) -> None:
        prune(engine, engine.plan(ITEMS, level))

    def work(engine: Deletion) -> None:
        engine.undo(engine.trash().receipts[0].id, "tester")

    return before, work


def purging(level: str) -> tuple[Work, Work]:
    before, _ = undoing(level)

    def work(engine: Deletion) -> None:
        engine.purge(engine.trash().receipts[0].id, "tester")

    return before, work


WORKS = {"prune": pruning, "undo": undoing, "purge": purging}


def attempt(work: Work, engine: Deletion, how: str) -> None:
    """Does the work, in a process of its own where that is to be killed."""
    if how.startswith("kill"):
        pid = os.fork()
        if pid == 0:
            try:
                work(engine)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "it was not killed"
        return
    try:
        work(engine)
    except (Killed, RequestError, OSError):
        pass


def check(bench: Bench, before: dict[str, int], level: str, purged: bool) -> None:
    """After recovery: whole items, no foreign inode moved, and the state of the receipts is that of the disk."""
    engine = bench.engine()
    engine.housekeeping()
    now = inodes(bench.run)
    assert {path: inode for path, inode in now.items() if before[path] != inode} == {}, "an inode was changed"
    in_trash = bench.trash()
    taken = EPOCH if level == LEVEL_WHOLE else EPOCH[2:]
    for item in ("0", "1"):
        here = [name for name in taken if f"{item}/{name}" in now]
        assert len(here) in (0, len(taken)), f"{item} is torn: {here}"
        if level == LEVEL_TRIM:
            assert {f"{item}/{name}" for name in EPOCH[:2]} <= now.keys()
    receipts = engine.trash().receipts
    states = {Path(item.path).name: item.state for receipt in receipts for item in receipt.items}
    for item in ("0", "1"):
        gone = f"{item}/{taken[0]}" not in now
        if not purged:
            assert gone == (states.get(item) == "trashed"), (states, now)
    assert bool(in_trash) == any(state in ("trashed", "purging") for state in states.values())
    if not purged:
        for receipt in receipts:
            engine.undo(receipt.id, "tester")
        assert inodes(bench.run) == before and bench.trash() == []
    else:
        for receipt in receipts:
            engine.purge(receipt.id, "tester")
        assert bench.trash() == []
    assert engine.journal(None, None).broken is None


@pytest.mark.parametrize("how", ["EIO", "ENOSPC", "die before", "die after", "kill before", "kill after"])
@pytest.mark.parametrize("level", [LEVEL_WHOLE, LEVEL_TRIM])
@pytest.mark.parametrize("name", list(WORKS))
def test_every_step(tmp_path: Path, name: str, level: str, how: str) -> None:
    setup, work = WORKS[name](level)
    counting = Failing(0, "")
    count_bench = Bench(tmp_path / "count", 2, 100)
    setup(count_bench.engine())
    work(count_bench.engine(counting))
    assert "rename" in counting.met or "unlink" in counting.met
    for at in range(1, counting.seen + 1):
        bench = Bench(tmp_path / str(at), 2, 100)
        before = inodes(bench.run)
        setup(bench.engine())
        attempt(work, bench.engine(Failing(at, how)), how)
        check(bench, before, level, purged=name == "purge")
        shutil.rmtree(tmp_path / str(at))


def test_a_rename_that_is_not_verified_is_found(tmp_path: Path) -> None:
    """Killed right after a rename that took a foreign thing: recovery puts that back."""
    bench = Bench(tmp_path)
    foreign = inodes(bench.foreign)

    class Swapped(Syscalls):
        def rename(self, directory: int, name: str, target_directory: int, target: str) -> None:
            (bench.run / "0").rename(bench.workspace / "mine")
            bench.foreign.rename(bench.run / "0")
            super().rename(directory, name, target_directory, target)
            raise Killed

    engine = bench.engine(Swapped())
    with pytest.raises(Killed):
        prune(engine, engine.plan(["out/0"], LEVEL_WHOLE))
    assert not (bench.run / "0").exists()
    bench.engine().housekeeping()
    assert inodes(bench.run / "0") == foreign and bench.trash() == []
