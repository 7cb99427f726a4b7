"""How fast a log of 1 GB is read, in how much memory, and what following it costs afterwards.

python -m bench.explain_log [MEGABYTES]
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remote.jobs.logwatch import LogWatch, VllmLoad

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "fixtures" / "broken_start_logs" / "good.log"
MEGABYTES = 1000
LINES_A_SECOND, FOLLOWED_SECONDS = 100, 20.0


@dataclass(frozen=True)
class Reading:
    """Of one log: seconds by the clock and of CPU, and the process's largest resident memory in bytes."""

    name: str
    seconds: float
    cpu: float
    resident: int

    def __str__(self) -> str:
        return f"{self.name:52}  {self.seconds:5.1f} s  {self.cpu:5.1f} s CPU  {self.resident / 1e6:5.1f} MB resident"


@dataclass(frozen=True)
class Following:
    """What the runner's reading of a served log costs: percent of a core."""

    percent: float

    def __str__(self) -> str:
        return f"{f'followed at {LINES_A_SECOND} lines a second':52}  {self.percent:5.2f} % of a core"


def start_up() -> bytes:
    """A recorded start, up to its readiness."""
    content = RECORDED.read_bytes()
    return content[: content.index(b"startup complete.\n") + len(b"startup complete.\n")]


def requests() -> Iterator[bytes]:
    """What a server says while it serves."""
    for number in itertools.count():
        yield (
            f'(APIServer pid=7) INFO:     127.0.0.1:{40000 + number % 20000} - "POST /v1/completions HTTP/1.1" 200 OK\n'
            if number % 50
            else "(APIServer pid=7) INFO 11-30 19:21:35 [loggers.py:257] Engine 000: Avg prompt throughput: 8.4 "
            "tokens/s, Avg generation throughput: 301.7 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache "
            "usage: 3.1%, Prefix cache hit rate: 0.0%\n"
        ).encode()


def failing_requests() -> Iterator[bytes]:
    """Requests that the server answers with an error and a traceback."""
    while True:
        yield (
            b"ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
            b'  File "/opt/vllm/serving.py", line 12, in create\n    raise ValueError("long")\nValueError: too long\n'
        )


def talk() -> Iterator[bytes]:
    """What a start may say for hours at the level DEBUG, none of it about its progress."""
    for number in itertools.count():
        yield f"(EngineCore pid=9) DEBUG 11-30 19:21:35 [core.py:{number % 900}] step {number} of something\n".encode()


def starts() -> Iterator[bytes]:
    """A server that is started again and again into one log."""
    return itertools.repeat(start_up())


SHAPES = {
    "one start, then requests": requests,
    "one start, then requests that fail": failing_requests,
    "the same start again and again": starts,
    "a start that talks and never gets ready": talk,
}


def read(name: str, path: Path, megabytes: int) -> Reading:
    with path.open("wb") as file:
        begin = start_up() if name != "a start that talks and never gets ready" else start_up()[:4000]
        file.write(begin)
        lines = SHAPES[name]()
        block = b"".join(itertools.islice(lines, 1 if name == "the same start again and again" else 5000))
        while file.tell() < megabytes * 1_000_000:
            file.write(block)
    command = [sys.executable, "-m", "eagle_console.cli", "explain-log", str(path), "--json"]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    cpu = usage.ru_utime + usage.ru_stime
    return Reading(f"{megabytes} MB: {name}", time.monotonic() - began, cpu, usage.ru_maxrss * 1024)


def follow(folder: Path) -> Following:
    """The runner's own reader over a log that grows, ten times a second; the writing is not counted."""
    log = folder / "stage.log"
    log.write_bytes(start_up())
    watch = LogWatch(str(log), str(folder / "stage.idx"), VllmLoad())
    watch.turn(time.monotonic(), 1.0)
    lines, spent, begin = requests(), 0.0, time.monotonic()
    with log.open("ab", buffering=0) as file:
        while (now := time.monotonic()) - begin < FOLLOWED_SECONDS:
            file.write(b"".join(itertools.islice(lines, LINES_A_SECOND // 10)))
            before = time.thread_time()
            watch.turn(now, now - begin)
            spent += time.thread_time() - before
            time.sleep(max(0.0, now + 0.1 - time.monotonic()))
    return Following(100 * spent / FOLLOWED_SECONDS)


def run(megabytes: int = MEGABYTES) -> list[Reading | Following]:
    """Each shape of log in turn, then the following."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        readings: list[Reading | Following] = [read(shape, folder / "served.log", megabytes) for shape in SHAPES]
        return [*readings, follow(folder)]


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        sys.stdout.write(f"{figure}\n")
