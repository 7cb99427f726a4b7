"""Counters beside the log: texts under /proc as they are, and this machine's own."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from remote.watch import counters, counting
from remote.watch.counters import Checkpoint, Counters

IO = "rchar: 323934931\nwchar: 3\nsyscr: 632687\nread_bytes: 30207705088\nwrite_bytes: 0\n"


def test_io_of_a_process() -> None:
    assert counters.parse_io(IO) == (30207705088, 323934931)
    assert counters.parse_io("") == (None, None)
    assert counters.parse_io("read_bytes: many\nrchar: 7") == (None, 7)


def test_work_of_a_process() -> None:
    stat = "3104 (VLLM::EngineCor (x)) S 1 2 3 0 -1 4194560 100 0 42 0 250 150 0 0 20 0 9 0 500 1 2"
    assert counters.parse_work(stat, 100) == (4.0, 42)


def test_disk_and_mount() -> None:
    disks = " 254       0 vda 1 0 8 5 1 0 0 0 0 0 0\n 259 1 nvme0n1p1 77 0 2048 9 0 0 0 0 0 0 0\n"
    assert counters.parse_disk(disks, "259:1") == 2048 * 512
    assert counters.parse_disk(disks, "8:0") is None and counters.parse_disk("", "259:1") is None
    mounts = "24 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n25 1 0:22 / /proc rw shared:1 - proc proc rw\n"
    assert counters.parse_mount(mounts, "259:1") == "/data ext4"
    assert counters.parse_mount(mounts, "1:1") == ""


def test_shards_are_in_the_order_of_their_numbers() -> None:
    names, sizes = counters.weight_files(
        {"m-10.safetensors": 1, "m-2.safetensors": 2, "m-1.safetensors": 3, "a.bin": 9}
    )
    assert names == ("m-1.safetensors", "m-2.safetensors", "m-10.safetensors") and sizes == (3, 2, 1)
    assert counters.weight_files({"a.bin": 9}) == (("a.bin",), (9,))


def test_the_slowest_rank_decides_how_much_is_read() -> None:
    weights = Checkpoint("/m", ("a", "b", "c"), (10, 10, 20))
    maps = "7f0-7f1 r--s 00000000 fd:00 12 /m/{}\n"
    ranks = [counters.rank_shard(pid, maps.format(name), weights) for pid, name in ((1, "c"), (2, "b"), (3, "z"))]
    assert [rank and rank.place for rank in ranks] == [3, 2, None]
    known = [rank for rank in ranks if rank is not None]
    assert counters.share_read(weights, known, 2.0) == 0.25
    assert counters.share_read(weights, [], 2.0) == 0.5
    assert counters.share_read(weights, [], None) is None


def test_moved() -> None:
    still = Counters(1.0, 5, 5, 1.0, 0)
    assert counters.moved(None, still)
    assert not counters.moved(still, Counters(2.0, 5, 5, 1.01, 0, disk_read=9))
    assert counters.moved(still, Counters(2.0, 6, 5, 1.0, 0)) and counters.moved(still, Counters(2.0, 5, 5, 2.0, 0))


def test_a_mapped_shard_of_a_living_process_is_found_through_a_hubs_links(tmp_path: Path) -> None:
    blobs, model = tmp_path / "blobs", tmp_path / "model"
    blobs.mkdir()
    model.mkdir()
    for number in (1, 2):
        (blobs / f"hash{number}").write_bytes(b"x" * 4096 * number)
        (model / f"model-{number}-of-2.safetensors").symlink_to(blobs / f"hash{number}")
    weights = counting.checkpoint(str(model))
    assert weights.sizes == (4096, 8192)
    with open(blobs / "hash2", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        seen = counting.read([os.getpid()], weights, 1.0, with_ranks=True)
    assert [(rank.pid, rank.place, rank.total) for rank in seen.ranks] == [(os.getpid(), 2, 2)]
    assert seen.cpu and seen.memory_available
    assert counting.read([os.getpid()], weights, 1.0, with_ranks=False).ranks == ()


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert counting.checkpoint(str(tmp_path / "none")).names == ()
    gone = counting.read([2**22 + 1], Checkpoint(""), 1.0, with_ranks=True)
    assert (gone.read_bytes, gone.cpu, gone.ranks, gone.disk_read) == (None, None, (), None)


@pytest.mark.parametrize(("content", "state"), [(True, "warm"), (False, "cold")])
def test_compile_cache(tmp_path: Path, content: bool, state: str) -> None:
    (tmp_path / "torch_compile_cache").mkdir()
    if content:
        (tmp_path / "torch_compile_cache" / "abc").mkdir()
    assert counting.compile_cache({"VLLM_CACHE_ROOT": str(tmp_path)}) == state
