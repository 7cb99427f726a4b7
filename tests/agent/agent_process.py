"""The agent as a real process, spoken to frame by frame."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 20.0


class AgentProcess:
    """A running agent. Reading waits at most ``SECONDS``.

    :param argv: what to run instead of ``python -m remote.agent``.
    """

    def __init__(self, argv: list[str] | None = None, **variables: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        self.process = subprocess.Popen(
            argv or [sys.executable, "-m", "remote.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
        )
        self._buffer = b""

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def send(self, **frame: Any) -> None:
        self.send_bytes(json.dumps(frame).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin
        os.write(self.process.stdin.fileno(), data)

    def end_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def hello(self, workspace: Path | None = None, **fields: Any) -> dict[str, Any]:
        """Introduces the console and gives the agent's answer."""
        where = str(workspace) if workspace else None
        self.send(t="hello", **{"protocol": [1], "client": "test", "workspace": where, **fields})
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """The next frame; an AssertionError when none comes."""
        assert self.process.stdout
        deadline = time.monotonic() + SECONDS
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the agent sent nothing"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"the agent ended: {self.stderr()}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        frame: dict[str, Any] = json.loads(line)
        return frame

    def receive_where(self, **fields: Any) -> dict[str, Any]:
        """The next frame that has these values, the others left out."""
        while True:
            frame = self.receive()
            if fields.items() <= frame.items():
                return frame

    def request(self, op: str, number: int = 1, **args: Any) -> dict[str, Any]:
        self.send(t="req", id=number, op=op, args=args)
        return self.receive_where(t="res", id=number)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(SECONDS)

    def stderr(self) -> str:
        assert self.process.stderr
        self.process.wait(SECONDS)
        return self.process.stderr.read().decode()

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
