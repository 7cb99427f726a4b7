"""Programs that somebody started by hand, for the tests of adopting: real processes with vLLM's words and titles."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from fixtures.ml_environment import free_port
from jobkit import until

from remote import procfs
from remote.adopt.adoption import Adoption
from remote.policy import Policy
from remote.protocol.adopted import Adopted
from remote.protocol.jobs import ProcessId

FAKE = Path(__file__).parents[1] / "fixtures" / "fake_vllm.py"
WRITABLE = Policy(False, "", (), None)


class ByHand:
    """A program started as a person would start it: nothing of ours is above it.

    :param redirect: what a shell adds to its command line, such as ``> serve.log 2>&1``.
    """

    def __init__(self, folder: Path, name: str = "vllm", words: Optional[list[str]] = None, redirect: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.ready_file = folder / "ready"
        self.words = words or ["serve", "/models/tiny-model", "--port", str(self.port)]
        self.program = folder / name
        shutil.copy(FAKE, self.program)
        self._note = folder / "note.json"
        self._redirect = redirect
        self.engines: list[ProcessId] = []
        self.main: ProcessId

    def start(
        self,
        engines: tuple[str, ...] = (),
        log: tuple[str, ...] = (),
        through: tuple[str, ...] = (),
        **environment: str,
    ) -> ByHand:
        """Starts it, by way of the command ``through``, and waits until it runs with its engines."""
        variables = {
            **os.environ,
            "FAKE_NOTE": str(self._note),
            "FAKE_READY_FILE": str(self.ready_file),
            "FAKE_ENGINES": json.dumps(engines),
            "FAKE_LOG": json.dumps(log),
            **environment,
        }
        line = 'exec "$0" "$@"' if "|" not in self._redirect else '"$0" "$@"'
        argv = ["bash", "-c", f"{line} {self._redirect}", *through, sys.executable, str(self.program), *self.words]
        # The shell between dies at once, so that the program is nobody's child here.
        code = (
            "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True, stdin=subprocess.DEVNULL)"
        )
        subprocess.run([sys.executable, "-c", code, *argv], env=variables, cwd=self.folder, check=True)
        noted: dict[str, Any] = until(lambda: json.loads(self._note.read_text()) if self._note.exists() else None)
        self.main = identity(noted["main"])
        self.engines = [identity(pid) for pid in noted["engines"]]
        return self

    def become_ready(self) -> None:
        self.ready_file.touch()

    def end(self) -> None:
        for process in (self.main, *self.engines):
            if procfs.alive(process):
                os.kill(process.pid, signal.SIGKILL)

    @property
    def id(self) -> str:
        return f"adopted-{self.main.pid}"


def identity(pid: int) -> ProcessId:
    """The process, once it is what it is to be: between fork and exec it has its parent's words."""
    found = procfs.identity(pid)
    assert found is not None
    return found


def record_of(adoption: Adoption, name: str) -> Optional[Adopted]:
    return next((record for record in adoption.list().records if record.id == name), None)


def wait_for(adoption: Adoption, name: str, condition: Callable[[Adopted], object], seconds: float = 20.0) -> Adopted:
    """The record of that id, once the condition holds."""
    deadline = time.monotonic() + seconds
    record = None
    while time.monotonic() < deadline:
        record = record_of(adoption, name)
        if record is not None and condition(record):
            return record
        time.sleep(0.05)
    raise AssertionError(f"it did not come true in time: {record}")
