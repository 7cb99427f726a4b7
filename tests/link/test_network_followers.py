"""Commands that follow a host, as a user runs them, while their connections are cut: nothing twice, nothing missing."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.jobkit import Bench, until
from fixtures import ml_environment
from link.network import LOADING, start_console
from link.sshd import SshServer

from remote.jobs.store import JobStore

pytestmark = pytest.mark.system

Start = Callable[..., "Console"]


class Console:
    """A running command, and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self._output = process, output

    @property
    def out(self) -> str:
        return self._output.read_text()

    @property
    def err(self) -> str:
        return self._output.with_suffix(".err").read_text()

    def until(self, condition: Callable[[], Any], seconds: float = 30.0) -> None:
        until(lambda: condition() or self.process.poll() is not None, seconds)
        assert condition(), self.err

    def ends(self) -> int:
        code = self.process.wait(60)
        assert "Traceback" not in self.err
        return code


@pytest.fixture
def start(sshd: SshServer, console_home: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[Console] = []

    def start(*words: str, **profile: str) -> Console:
        output = tmp_path / f"console{len(started)}.out"
        process = start_console(
            console_home, sshd, *words, output=output, workspace=str(tmp_path / "workspace"), **profile
        )
        started.append(Console(process, output))
        return started[-1]

    (tmp_path / "workspace").mkdir()
    yield start
    for console in started:
        console.process.kill()
        console.process.wait()


def cut(sshd: SshServer, console: Console, times: int) -> None:
    """Cuts the connection again and again, each time after the command has come back."""
    for number in range(1, times + 1):
        sshd.drop_connections()
        console.until(lambda number=number: console.err.count("answers again") == number)
        time.sleep(0.7)  # some lines over the new connection


def test_logs_has_every_line_once(sshd: SshServer, start: Start, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "workspace").write(LOADING.replace("TICKS", "120"), watcher="vllm_load").start()
    console = start("logs", "box", bench.id, "-f", "--tail", "100000")
    console.until(lambda: console.out)
    cut(sshd, console, 3)
    assert console.ends() == 0
    assert console.out == bench.log()
    assert console.err.count("connection lost") == 3
    assert "jobs go on" in console.err


def test_run_has_every_event_once(sshd: SshServer, start: Start, tmp_path: Path) -> None:
    python, verifier = ml_environment.make(tmp_path)
    vllm = tmp_path / "ml" / "bin" / "vllm"
    vllm.write_text(vllm.read_text().replace("for done in range(3):", "for done in range(3):\n    time.sleep(2.5)"))
    words = ("run", "box", "serve", f"port={ml_environment.free_port()}", "--follow")
    console = start(*words, python=str(python), verifier=str(verifier))
    try:
        console.until(lambda: "launched" in console.err)
        cut(sshd, console, 2)
        assert console.ends() == 0
        assert "is ready after" in console.out
        store = JobStore(str(tmp_path / "workspace"))
        [job] = store.list().jobs
        written = [event.text for event in store.events(job.id, 0)]
        printed = [match[1] for match in re.finditer(r"^ *[\d.:hms ]+s  (\S.*)$", console.err, re.MULTILINE)]
        assert [line for line in printed if line in written] == written
    finally:
        stop = start("stop", "box", "serve", "--yes", "--force", python=str(python), verifier=str(verifier))
        assert stop.ends() == 0


def test_status_goes_on(sshd: SshServer, start: Start) -> None:
    console = start("status", "box", "--watch", "--json")
    console.until(lambda: console.out)
    cut(sshd, console, 1)
    count = console.out.count("\n")
    console.until(lambda: console.out.count("\n") > count)
    times = [json.loads(line)["time"] for line in console.out.splitlines()]
    assert times == sorted(set(times))


def test_a_first_connection_that_fails_is_not_tried_again(sshd: SshServer, start: Start, console_home: Path) -> None:
    (console_home / ".ssh" / "id_ed25519").unlink()
    console = start("status", "box", "--watch")
    assert console.ends() == 3
    assert "refuses the login" in console.err


def test_a_host_that_refuses_us_later_ends_the_command(sshd: SshServer, start: Start, console_home: Path) -> None:
    console = start("status", "box", "--watch")
    console.until(lambda: console.out)
    (sshd.directory / "authorized_keys").write_text("")
    sshd.drop_connections()
    assert console.ends() == 3
    assert "connection lost" in console.err
    assert "refuses the login" in console.err
