"""What fills a disk beside the workspace: caches, leftovers in shared memory, core dumps, deleted files still open.

None of it is moved by us: a cache has its own command, and a deleted file is freed by the end of its holder.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping

from remote import procfs
from remote.disk import artifacts
from remote.disk.artifacts import Found
from remote.protocol.artifacts import KEEP, Artifact, Reason, Size, Verdict

_SHM = re.compile(r"(?:vllm_offload_.*\.mmap|nccl-.*|psm_.*|sem\..*|torch_.*|mp-.*)")
_SHM_FOLDER = "/dev/shm"
_PID = re.compile(r"(?:torch|vllm_offload)_(?:.*_)?(\d{2,7})(?:[_.].*)?")  # other names are random
_BLOCKING = ("vllm_offload_", "nccl-")  # the next start can fail because of these, however small
_SMALLEST_SEGMENT = 2**20
_SMALLEST_DELETED = 2**20
_NOT_FILES = ("/memfd:", "/dev/", "/SYSV", "/[", "/proc/")


def caches(environment: Mapping[str, str]) -> Iterator[Found]:
    """The caches of this user that are there, by the variables that move them.

    :param environment: of the agent.
    """
    home = environment.get("HOME", "/nonexistent")
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    hub_home = environment.get("HF_HOME") or os.path.join(cache, "huggingface")
    compiled = [
        environment.get("VLLM_CACHE_ROOT") or os.path.join(cache, "vllm"),
        environment.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"),
        os.path.join(cache, "flashinfer"),
        *sorted(glob.glob("/tmp/torchinductor_*")),
    ]
    for path in compiled:
        if _is_folder(path):
            yield Found(path, artifacts.COMPILE_CACHE, detail="minutes of the next cold start", movable=False)
    hub = environment.get("HF_HUB_CACHE") or os.path.join(hub_home, "hub")
    if _is_folder(hub):
        yield Found(hub, artifacts.HUB_CACHE, detail="clear it with `hf cache`", movable=False)
    data = environment.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    for path in (os.path.join(cache, "wandb"), os.path.join(data, "wandb", "artifacts", "staging")):
        if _is_folder(path):
            yield Found(path, artifacts.LOG, detail="clear it with `wandb artifact cache cleanup`", movable=False)


def shared_memory(folder: str = _SHM_FOLDER) -> Iterator[Found]:
    """Segments of engines and trainers in shared memory, with what is known of their creator.

    A crashed engine leaves them behind, and its next start can fail because of them.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if _SHM.fullmatch(name) and (name.startswith(_BLOCKING) or _allocated(path) >= _SMALLEST_SEGMENT):
            match = _PID.fullmatch(name)
            gone = match and procfs.stat(int(match[1])) is None
            detail = f"left over: its creator, process {match[1]}, is gone" if match and gone else ""
            yield Found(path, artifacts.SHARED_MEMORY, folder=False, detail=detail, movable=False)


def core_dumps(folder: str = "/var/lib/systemd/coredump") -> Iterator[Found]:
    """What the system has stored of crashed processes."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.startswith("core."):
            yield Found(os.path.join(folder, name), artifacts.CORE_DUMP, folder=False, movable=False)


def deleted_open(now: float) -> list[Artifact]:
    """Deleted files that processes still hold open, the largest first: their space comes back when those end.

    :param now: wall seconds.
    """
    found: dict[tuple[int, int], tuple[str, os.stat_result, set[int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            for path, status in _deleted(int(name)):
                entry = found.setdefault((status.st_dev, status.st_ino), (path, status, set()))
                entry[2].add(int(name))
    listed = [_hidden(path, status, sorted(pids), now) for path, status, pids in found.values()]
    return sorted(listed, key=lambda item: -item.size.allocated)


def _deleted(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            path = os.readlink(f"{folder}/{name}")
            if not path.endswith(" (deleted)") or path.startswith(_NOT_FILES):
                continue
            status = os.stat(f"{folder}/{name}")
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_blocks * 512 >= _SMALLEST_DELETED:
            yield path[: -len(" (deleted)")], status


def _hidden(path: str, status: os.stat_result, pids: list[int], now: float) -> Artifact:
    allocated = status.st_blocks * 512
    record = procfs.stat(pids[0])
    holder = f"process {pids[0]} ({record.comm if record else 'gone'})"
    more = f" and {len(pids) - 1} more" if len(pids) > 1 else ""
    text = f"deleted, and still open: ending {holder}{more} would free it"
    verdict = Verdict(KEEP, (Reason("deleted_open", text, True, f"/proc/{pids[0]}/fd", now),))
    size = Size(allocated, status.st_size, allocated, 1)
    return Artifact(path, artifacts.DELETED_OPEN, size, verdict, "", status.st_mtime, False, detail=holder + more)


def _allocated(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512
    except OSError:
        return 0


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
