"""The files of a job directory: names, atomic writing, and reading that trusts nothing.

A record is one JSON object in one file, replaced as a whole. Whoever shares the file system can put anything into a job
directory, so a reader takes only a regular file of bounded size that holds strict JSON of the right types.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, TypeVar

from remote.protocol.codec import from_wire, to_wire
from remote.protocol.errors import ProtocolError

SPEC = "spec.json"
STARTED = "started.json"
STATE = "state.json"
EVENTS = "events.jsonl"
SAMPLES = "samples.jsonl"
EXIT = "exit.json"
STOP = "stop.json"
LOG = "stage.log"
INDEX = "stage.idx"
LOCK = "lock"
RUNNER_LOG = "runner.log"

JOBS_FOLDER = os.path.join(".eagle_console", "jobs")
"""Below the workspace."""

JOB_ID = re.compile(r"^[a-z][a-z0-9_]{0,31}-\d{8}-\d{6}-[0-9a-f]{4}$")
"""``<stage>-<YYYYMMDD>-<HHMMSS>-<4 hex>``: safe as a file name, sorts by time within a stage."""

MAX_RECORD_BYTES = 256 * 1024
MAX_LINE_BYTES = 32 * 1024
LAST_RECORD_SECONDS = 600.0

T = TypeVar("T")


class RecordError(Exception):
    """A record that is there but cannot be used. The message says why, in words that follow the file's name."""


def write_record(path: str, record: Any, durable: bool) -> None:
    """Replaces a record atomically.

    :param durable: the record must outlive a crash of the host. What is replaced several times a second need not: the
        process that it describes is gone after a crash, and a flush can block for seconds on a busy disk.
    :raises OSError: when it cannot be written; the old record is then untouched.
    """
    data = json.dumps(to_wire(record), indent=1, allow_nan=False).encode("ascii") + b"\n"
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    if durable:
        _sync_folder(os.path.dirname(path))


def write_last(path: str, record: Any, sleep: Callable[[float], None]) -> None:
    """Writes a job's last record, waiting for room on a full disk: without it nobody can know how the job ended.

    Where somebody removed the job's directory there is nothing to wait for, and nobody to tell.

    :raises OSError: when it could not be written for ten minutes.
    """
    deadline = time.monotonic() + LAST_RECORD_SECONDS
    while True:
        try:
            write_record(path, record, durable=True)
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        sleep(1.0)


def read_record(path: str, kind: type[T]) -> Optional[T]:
    """The record in a file, None when there is no such file.

    :raises RecordError: when there is one and it cannot be used.
    """
    data = read_file(path, MAX_RECORD_BYTES)
    if data is None:
        return None
    try:
        return from_wire(kind, parse_json(data))
    except ProtocolError as error:
        raise RecordError(str(error)) from None


def read_file(path: str, limit: int) -> Optional[bytes]:
    """The bytes of a small regular file, None when there is none.

    :raises RecordError: when it is something else, larger than ``limit`` bytes or unreadable.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(error.strerror or str(error)) from None
    with open(descriptor, "rb") as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise RecordError(error.strerror or str(error)) from None
    if len(data) > limit:
        raise RecordError(f"it is longer than {limit} bytes")
    return data


def open_regular(path: str) -> int:
    """A descriptor for reading a regular file: never through a symbolic link at its end, never waiting on a FIFO.

    :raises OSError: as ``open`` does, and for anything that is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a regular file")
    return descriptor


def parse_json(data: bytes) -> Any:
    """Strict JSON: no NaN and no infinity, which the wire cannot carry.

    :raises RecordError: when it is anything else.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"it is not JSON ({str(error)[:80]})") from None


def scalars(data: dict[str, Any]) -> dict[str, Any]:
    """The entries whose values are plain: what a hostile record nests deeper is left out."""
    return {key: value for key, value in data.items() if value is None or isinstance(value, (str, int, float, bool))}


def job_folder(workspace: str) -> str:
    """The folder that holds a workspace's job directories."""
    return str(Path(workspace) / JOBS_FOLDER)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not allowed")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
