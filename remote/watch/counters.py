"""What the kernel counts while weights are read: texts under /proc, parsed. Pure. Formats: proc(5), iostats.rst.

Measured on ext4: reading through ``mmap`` adds nothing to ``rchar``, and to ``read_bytes`` what came from the disk, so
that a load out of the page cache leaves both alone; a process that maps a checkpoint has one shard mapped at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from remote.protocol.progress import RankShard

WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files of weights, in the order in which vLLM reads them, with their bytes.

    :param filesystem: mount point and type of the file system that holds them, empty where unknown.
    :param device: its block device as ``/proc/diskstats`` numbers it, ``major:minor``; empty where unknown.
    """

    folder: str
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    filesystem: str = ""
    device: str = ""

    @property
    def size(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class Counters:
    """All counters of a process tree at one moment, None where they cannot be read.

    :param at: seconds since the job's start.
    :param read_bytes: from storage; ``rchar`` by read calls, from wherever the bytes came.
    :param cpu: seconds of processor time, used by all processes.
    :param major_faults: page faults that waited for storage.
    :param disk_read: bytes that the checkpoint's disk has delivered to anybody.
    :param memory_available: bytes of RAM that the host can still give, page cache included.
    """

    at: float
    read_bytes: Optional[int] = None
    rchar: Optional[int] = None
    cpu: Optional[float] = None
    major_faults: Optional[int] = None
    ranks: tuple[RankShard, ...] = ()
    disk_read: Optional[int] = None
    memory_available: Optional[int] = None


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """The key of the order in which shards are read: numbers by their value."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name))


def weight_files(sizes: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and sizes of the weights among a folder's files: of one kind, the one that vLLM takes first."""
    for suffix in WEIGHTS:
        names = sorted((name for name in sizes if name.endswith(suffix)), key=natural)
        if names:
            return tuple(names), tuple(sizes[name] for name in names)
    return (), ()


def parse_io(text: str) -> tuple[Optional[int], Optional[int]]:
    """``read_bytes`` and ``rchar`` of ``/proc/PID/io``; None for one that is not there."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("read_bytes", "rchar") and value.strip().isdigit():
            found[name] = int(value)
    return found.get("read_bytes"), found.get("rchar")


def parse_work(text: str, ticks: int) -> tuple[float, int]:
    """Processor seconds and major faults of ``/proc/PID/stat``.

    :raises ValueError, IndexError: when the text is not such a record.
    """
    fields = text[text.rindex(")") + 1 :].split()
    return (int(fields[11]) + int(fields[12])) / ticks, int(fields[9])


def parse_disk(text: str, device: str) -> Optional[int]:
    """Bytes read from a device (``major:minor``) since boot, of ``/proc/diskstats``; None where it is not listed."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 5 and f"{fields[0]}:{fields[1]}" == device and fields[5].isdigit():
            return int(fields[5]) * 512  # sectors of 512 bytes, whatever the device's own are
    return None


def parse_mount(data: str, device: str) -> str:
    """Mount point and type of the device's file system, of ``/proc/self/mountinfo``; empty where it is not listed."""
    for line in data.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 4 and fields[2] == device and after:
            return f"{fields[4]} {after.split()[0]}"
    return ""


def rank_shard(pid: int, maps: str, checkpoint: Checkpoint) -> Optional[RankShard]:
    """The file of the checkpoint that a process has mapped: of several the last; None where it has none."""
    places = [place for place, name in enumerate(checkpoint.names) if f"{checkpoint.folder}/{name}\n" in f"{maps}\n"]
    if not places:
        return None
    return RankShard(pid, checkpoint.names[places[-1]], places[-1] + 1, len(checkpoint.names))


def share_read(checkpoint: Checkpoint, ranks: Sequence[RankShard], done: Optional[float]) -> Optional[float]:
    """The share of the checkpoint's bytes that the slowest rank has behind it.

    :param done: files that rank 0's bar calls finished, None without a bar.
    """
    if not checkpoint.size:
        return None
    places = [rank.place - 1 for rank in ranks]
    if not places and done is None:
        return None
    place = min(places) if places else int(done or 0)
    return sum(checkpoint.sizes[: max(0, place)]) / checkpoint.size


def moved(before: Optional[Counters], now: Counters) -> bool:
    """Whether anything of the tree went on between two readings."""
    if before is None:
        return True
    if now.cpu is not None and before.cpu is not None and now.cpu - before.cpu > 0.05:
        return True
    names = ("read_bytes", "rchar", "major_faults", "ranks")
    return any(getattr(before, name) != getattr(now, name) for name in names)
