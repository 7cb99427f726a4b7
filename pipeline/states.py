"""Files of hidden states: what a whole one is, what is left over, and what an extraction server must be told."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import budget, verifier_config
from pipeline.plan.budget import Budget
from pipeline.plan.safetensors import HeaderError, read_header
from pipeline.plan.verifier_config import VerifierConfig
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun

STATES, TOKENS = "hidden_states", "token_ids"
RESERVE_BYTES = 256 * 1024**2
"""So much stays free on the disk: what else is written there must not fail because of us."""

LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Shape:
    """What every file of a run must hold: states of so many layers, so wide."""

    layers: int
    width: int


def shape_of(config: VerifierConfig) -> Shape:
    """The shape that training expects of this verifier's states."""
    return Shape(len(layer_ids(config)), config.hidden_size)


def layer_ids(config: VerifierConfig) -> tuple[int, ...]:
    """The layers to save.

    :raises StageError: for a verifier that is too small.
    """
    try:
        return verifier_config.extraction_layers(config.layers)
    except ValueError as error:
        raise StageError(
            f"{error}.",
            file=os.path.join(config.path, verifier_config.FILE),
            field="num_hidden_layers",
            remedy="EAGLE-3 needs a verifier of more layers.",
        ) from None


def problem(path: Path, length: int, shape: Shape) -> str:
    """What is wrong with a file, empty when it is whole: a header that fits, and states for every token.

    :param length: tokens of its row.
    """
    try:
        tensors = read_header(str(path)).shapes
    except FileNotFoundError:
        return "it is missing"
    except (OSError, HeaderError) as error:
        return str(error)
    wanted = {STATES: (length, shape.layers, shape.width), TOKENS: (length,)}
    for name, sides in wanted.items():
        if tensors.get(name) != sides:
            return f"{name} is {list(tensors[name]) if name in tensors else 'missing'}, not {list(sides)}"
    return ""


def tokens_of(path: Path) -> list[int]:
    """The token ids in a file.

    :raises OSError: when it cannot be read.
    :raises HeaderError: when it is not whole, or they are not 64-bit numbers.
    """
    info = read_header(str(path)).tensors.get(TOKENS)
    if info is None or info.dtype != "I64":
        raise HeaderError(f"{path} holds no 64-bit {TOKENS}")
    numbers = array.array("q")
    with open(path, "rb") as file:
        file.seek(info.begin)
        numbers.frombytes(file.read(info.bytes))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def wait_until_written(path: Path) -> None:
    """Waits for the server's writer to let go of the file's lock, and removes the lock, which the server never does.

    :raises TimeoutError: when it does not let go.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is still being written after {LOCK_SECONDS:.0f} s") from None
                time.sleep(_POLL_SECONDS)
    finally:
        os.close(descriptor)
    lock.unlink(missing_ok=True)


def storage(stage: StageRun) -> Path:
    """Where the stage's own server writes before a file gets its name: on the same file system as the data."""
    return stage.run.data / ".storage"


@contextlib.contextmanager
def clean_storage(stage: StageRun) -> Iterator[Path]:
    """The storage folder, empty at the beginning and gone at the end: what is left in it belongs to no row."""
    folder = storage(stage)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_locks(folder: Path) -> int:
    """Removes ``.lock`` files that servers have left; how many."""
    found = list(folder.glob("*.lock")) if folder.is_dir() else []
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def bounds(stage: StageRun, config: VerifierConfig, length: int) -> Budget:
    """The token budget of the stage's extraction server, said to the user."""
    size = budget.bytes_per_token(config.hidden_size, len(layer_ids(config)), server_dtype(stage, config))
    found = budget.extraction(
        size,
        length,
        int(stage.parameters["concurrency"]),
        host_memory(),
        stage.environment.cpu_only,
        stage.parameters.get("max_num_batched_tokens"),
    )
    stage.message(f"Budget: {found.words}.")
    return found


def server_values(stage: StageRun, config: VerifierConfig, found: Budget) -> dict[str, Any]:
    """What the server of that budget is started with."""
    return {
        "max_model_len": found.length,
        "max_num_batched_tokens": max(found.batched_tokens, found.sequences),
        "max_num_seqs": found.sequences,
        "layers": ",".join(map(str, layer_ids(config))),
        "storage": str(storage(stage)),
    }


def server_dtype(stage: StageRun, config: VerifierConfig) -> Optional[str]:
    """The type that the server computes in, as far as it is known."""
    given = stage.parameters.get("dtype")
    if given in (None, "auto"):
        return "float32" if stage.environment.cpu_only and given is None else config.dtype
    return str(given)


def check_room(stage: StageRun, tokens: int, config: VerifierConfig, folder: Path) -> None:
    """Says how much will be written, and refuses when it cannot fit.

    :raises StageError: naming how much must be freed.
    """
    size = tokens * budget.bytes_per_token(config.hidden_size, len(layer_ids(config)), server_dtype(stage, config))
    free = free_bytes(folder)
    stage.message(f"Hidden states of {tokens:,} tokens will take {size / 1e9:.2f} GB; {free / 1e9:.2f} GB are free.")
    if size + RESERVE_BYTES > free:
        raise StageError(
            f"{size / 1e9:.2f} GB of hidden states do not fit into {free / 1e9:.2f} GB.",
            file=str(folder),
            remedy=f"Free {(size + RESERVE_BYTES - free) / 1e9:.2f} GB, or take fewer samples or a shorter seq_length.",
            klass="disk_full",
        )


def watch_room(folder: Path) -> None:
    """To be called while states are written.

    :raises StageError: before the disk is full, so that nothing half-written is left.
    """
    if free_bytes(folder) < RESERVE_BYTES // 2:
        raise StageError(
            "The disk is almost full; the stage stops before a file is cut.",
            file=str(folder),
            remedy="Free space, then run the stage again: what is finished is kept.",
            klass="disk_full",
        )


@contextlib.contextmanager
def room_first(folder: Path) -> Iterator[None]:
    """Within it a failure on a disk that has become full is told as that: a server that cannot write dies of it, and
    its client sees only that.

    :raises StageError: of the disk in place of the failure.
    """
    try:
        yield
    except StageError as error:
        if error.klass != "disk_full":
            watch_room(folder)
        raise


def free_bytes(folder: Path) -> int:
    """What an ordinary user may still write there."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def host_memory() -> Optional[int]:
    """Bytes of the host's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def total_bytes(paths: Sequence[Path]) -> int:
    """Sum of the files' sizes."""
    return sum(path.stat().st_size for path in paths)
