"""Nothing of ours stays on a host whose console went away without a word, however far it had come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eagle_console.link.bootstrap import EXEC_LINE, LENGTH_DIGITS
from eagle_console.link.bundle import stage1_source
from remote.protocol.frames import LEASE_SECONDS

SECONDS = 15.0


@contextmanager
def on_host(line: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The bootstrap's command with a console behind it that sends what the test writes, and never ends its stream."""
    path = f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"
    environment = {"HOME": str(home), "PATH": path}
    with subprocess.Popen(
        ["/bin/sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def hasty(text: str, found: str, instead: str) -> str:
    assert text.count(found) == 1
    return text.replace(found, instead)


def test_the_line_waits_as_long_as_the_agent(tmp_path: Path) -> None:
    with on_host(hasty(EXEC_LINE, f"alarm({LEASE_SECONDS:.0f})", "alarm(1)"), tmp_path) as process:
        assert process.wait(SECONDS) != 0


@pytest.mark.parametrize("sent", ["nothing", "a part", "all but the bundle"])
def test_the_first_stage_waits_as_long_as_the_agent(tmp_path: Path, sent: str) -> None:
    source = hasty(stage1_source().decode(), f"SILENCE_SECONDS = {LEASE_SECONDS:.0f}", "SILENCE_SECONDS = 1").encode()
    order = json.dumps({"marker": "m", "bundles": {"any": "0" * 64, "linux-x86_64": "0" * 64}}).encode()
    message = b"%0*d" % (LENGTH_DIGITS, len(order)) + order
    rest = {"nothing": b"", "a part": message[:20], "all but the bundle": message}[sent]
    with on_host(EXEC_LINE, tmp_path) as process:
        assert process.stdin
        process.stdin.write(b"%06d" % len(source) + source + rest)
        process.stdin.flush()
        begin = time.monotonic()
        assert process.wait(SECONDS) != 0
        assert time.monotonic() - begin < SECONDS
