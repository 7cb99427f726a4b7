"""Reads the counters of ``counters`` from this host. Everything is optional: None without rights or support."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from remote.telemetry import procstat
from remote.watch import counters
from remote.watch.counters import Checkpoint, Counters

MAX_FILES = 4096
MAX_MAPS_BYTES = 4 * 1024 * 1024
MAX_PROCESSES = 128

_TICKS = os.sysconf("SC_CLK_TCK")


def checkpoint(folder: str) -> Checkpoint:
    """The weights of a model folder; without files where it cannot be read or is not there."""
    real = os.path.realpath(folder)
    sizes: dict[str, int] = {}
    try:
        with os.scandir(real) as entries:
            for _, entry in zip(range(MAX_FILES), entries):
                if entry.name.endswith(counters.WEIGHTS) and entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
        status = os.stat(real)
    except OSError:
        return Checkpoint(real)
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    names, bytes_of = counters.weight_files(sizes)
    # A hub's folder holds links: what a process has mapped is the file behind them.
    folders = {os.path.dirname(os.path.realpath(os.path.join(real, name))) for name in names}
    if len(folders) == 1 and folders != {real}:
        real = folders.pop()
        names = tuple(os.path.basename(os.path.realpath(os.path.join(folder, name))) for name in names)
    return Checkpoint(real, names, bytes_of, counters.parse_mount(_text("/proc/self/mountinfo") or "", device), device)


def read(pids: Iterable[int], weights: Checkpoint, at: float, with_ranks: bool) -> Counters:
    """The counters of a process tree now.

    :param with_ranks: look for the mapped shards too, which costs a long text a process.
    """
    read_bytes: Optional[int] = None
    rchar: Optional[int] = None
    cpu: Optional[float] = None
    faults: Optional[int] = None
    ranks = []
    for _, pid in zip(range(MAX_PROCESSES), pids):
        stored, called = counters.parse_io(_text(f"/proc/{pid}/io") or "")
        read_bytes, rchar = _plus(read_bytes, stored), _plus(rchar, called)
        try:
            used, waited = counters.parse_work(_text(f"/proc/{pid}/stat") or "", _TICKS)
            cpu, faults = (cpu or 0.0) + used, (faults or 0) + waited
        except (ValueError, IndexError):
            pass  # it has ended meanwhile
        if with_ranks and weights.names:
            rank = counters.rank_shard(pid, _text(f"/proc/{pid}/maps") or "", weights)
            if rank is not None:
                ranks.append(rank)
    disk = counters.parse_disk(_text("/proc/diskstats") or "", weights.device) if weights.device else None
    return Counters(at, read_bytes, rchar, cpu, faults, tuple(ranks), disk, _memory_available())


def compile_cache(environment: Mapping[str, str]) -> str:
    """``warm`` when the cache of a server with this environment holds compiled code, else ``cold``."""
    root = environment.get("VLLM_CACHE_ROOT") or os.path.expanduser("~/.cache/vllm")
    try:
        with os.scandir(os.path.join(root, "torch_compile_cache")) as entries:
            return "warm" if next(entries, None) is not None else "cold"
    except OSError:
        return "cold"


def _memory_available() -> Optional[int]:
    try:
        return procstat.parse_memory(_text("/proc/meminfo") or "")[1]
    except ValueError:
        return None


def _plus(total: Optional[int], more: Optional[int]) -> Optional[int]:
    return total if more is None else (total or 0) + more


def _text(path: str) -> Optional[str]:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(MAX_MAPS_BYTES)
    except OSError:
        return None
