"""Slow or stuck: which sentence is said, and that none is said without reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote.protocol.progress import RankShard
from remote.watch import bottleneck
from remote.watch.bottleneck import Situation
from remote.watch.history import PastStart, StartKey

GIB = 2.0**30
LOADING = Situation("weights", 100.0, "0.32.0", "/data ext4", size=400 * GIB, memory=500 * GIB)


def ranks(*places: int) -> tuple[RankShard, ...]:
    return tuple(RankShard(pid, f"s{place}", place, 30) for pid, place in enumerate(places))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(LOADING, rate=0.4 * GIB), ["Disk-bound at 0.43 GB/s", "prefetch", "ipc_cache"]),
        (replace(LOADING, rate=4e6), []),
        (replace(LOADING, rate=3e9, usual=7e9), ["Disk-bound at 3.00 GB/s", "gave 7.00 GB/s before"]),
        (replace(LOADING, rate=3e9, usual=3.5e9), []),
        (replace(LOADING, rate=None), []),
        (replace(LOADING, rate=0.4 * GIB, memory=231 * GIB, read=500 * GIB), ["Page cache too small", "231 GiB"]),
        (replace(LOADING, memory=231 * GIB, read=300 * GIB), []),
        (replace(LOADING, ranks=ranks(12, 3, 12, 11)), ["One slow rank: process 1 is in file 3 of 30"]),
        (replace(LOADING, ranks=ranks(12, 11, 12, 11)), []),
        (replace(LOADING, still=61.0), ["Stalled", "61 s"]),
        (replace(LOADING, still=59.0), []),
        (replace(LOADING, still=300.0, silence=180.0), []),
        (replace(LOADING, still=361.0, silence=180.0), ["Stalled"]),
        (Situation("compile", 700.0, longest=200.0), ["Compiling for 700 s", "200 s", "VLLM_CACHE_ROOT"]),
        (Situation("compile", 20.0, longest=200.0), []),
        (Situation("capture", 90.0, longest=20.0), ["Capturing CUDA graphs for 90 s"]),
        (Situation("capture", 90.0), []),
        (Situation("", 5.0), []),
    ],
)
def test_sentence(now: Situation, words: list[str]) -> None:
    said = bottleneck.sentence(now)
    assert all(word in said for word in words)
    assert bool(said) == bool(words), said


@pytest.mark.parametrize(
    ("version", "filesystem", "has", "lacks"),
    [
        ("0.8.5", "/x nfs4", "runai_streamer", "prefetch"),
        ("0.10.2", "/x lustre", "eager", "prefetch"),
        ("0.18.0", "/x nfs4", "prefetch", "ipc_cache"),
        ("0.23.1rc1.dev", "", "enable_multithread_load", "ipc_cache"),
        ("v0.33.0", "", "ipc_cache", "runai"),
    ],
)
def test_a_remedy_is_one_that_the_release_has(version: str, filesystem: str, has: str, lacks: str) -> None:
    said = bottleneck.remedy(version, filesystem)
    assert has in said and lacks not in said


@pytest.mark.parametrize("version", ["", "dev", "0.6.0"])
def test_no_remedy_for_a_release_that_has_none(version: str) -> None:
    assert bottleneck.remedy(version, "") == ""


def test_the_usual_rate_is_that_of_cold_loads_on_the_same_file_system() -> None:
    here, there = StartKey(filesystem="/data ext4"), StartKey(filesystem="/nfs nfs4")
    past = [
        PastStart(here, {"weights": 100.0}, 1e11), PastStart(here, {"weights": 10.0}, 1e11, warm=True),
        PastStart(there, {"weights": 1000.0}, 1e11), PastStart(here, {"weights": 0.0}, 1e11),
    ]  # fmt: skip
    assert bottleneck.usual_rate(past, "/data ext4") == 1e9
    assert bottleneck.usual_rate(past, "/other xfs") is None
