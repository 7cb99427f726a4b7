"""The agent's threads share one heap, in a process of its own, since it is a setting of the whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import ctypes, sys, threading
from remote.allocator import use_one_heap
if sys.argv[1] == "one" and not use_one_heap():
    sys.exit("cannot be set")
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(9)
def allocate():
    for _ in range(100):
        libc.malloc(64)
    barrier.wait()
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
barrier.wait()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
barrier.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heaps")
def test_threads_share_one_heap() -> None:
    root = str(Path(__file__).parents[2])
    heaps = {
        which: subprocess.run(
            [sys.executable, "-c", _SCRIPT, which], cwd=root, capture_output=True, text=True, check=True
        ).stdout.count("<heap ")
        for which in ("one", "many")
    }
    assert heaps["one"] == 1 < heaps["many"]
