"""A real vLLM server started by hand on the CPU: found loading, watched to ready, left alone, stopped by name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote import procfs
from remote.protocol.jobs import ProcessId

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
READY_SECONDS = 240
CLI = [sys.executable, "-m", "eagle_console.cli"]


class Hand:
    """The server, as a person starts it in a shell: ``vllm serve ... > serve.log 2>&1 &``."""

    def __init__(self, folder: Path) -> None:
        pipeline = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
        python, verifier = pipeline / "ml" / "bin" / "python", pipeline / "SmolLM2-135M-Instruct"
        if not python.exists() or not verifier.is_dir():
            message = f"no pipeline environment in {pipeline}"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
        self.folder = folder
        self.log = folder / "serve.log"
        self.name = verifier.name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = [
            str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(verifier), "--port", str(self.port),
            "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
            "--max-num-seqs", "8", "--api-key", "a-secret-word",
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "2", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        code = (
            "import subprocess, sys; log = open(sys.argv[1], 'ab');"
            "print(subprocess.Popen(sys.argv[2:], stdout=log, stderr=log, start_new_session=True).pid)"
        )
        started = subprocess.run(
            [sys.executable, "-c", code, str(self.log), *words],
            env=environment,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        found = procfs.identity(int(started.stdout))
        assert found is not None
        self.main = found
        self.seen: set[ProcessId] = {found}

    @property
    def id(self) -> str:
        return f"adopted-{self.main.pid}"

    def look(self) -> None:
        """Remembers every process that it has."""
        boot = procfs.boot_id()
        self.seen |= {ProcessId(each.pid, each.start_ticks, boot) for each in procfs.descendants([self.main.pid])}

    def living(self) -> list[int]:
        return [process.pid for process in self.seen if procfs.alive(process)]

    def ask(self) -> str:
        body = {"model": str(self.model()), "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer a-secret-word"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text: str = json.load(answer)["choices"][0]["text"]
        return text

    def model(self) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/models", headers={"Authorization": "Bearer a-secret-word"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            name: str = json.load(answer)["data"][0]["id"]
        return name

    def end(self) -> None:
        self.look()
        for process in self.seen:
            if procfs.alive(process):
                os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def console(tmp_path: Path) -> list[str]:
    """The command line for a host ``here``, whose agent is a child of the console."""
    config = tmp_path / "config.toml"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    config.write_text(f'[hosts.here]\naddress = "local"\nworkspace = "{workspace}"\n')
    return ["--config", str(config)]


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[Hand]:
    server = Hand(tmp_path)
    yield server
    server.end()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )


def status(console: list[str]) -> dict[str, Any]:
    answer = run("status", "here", "--json", *console)
    assert answer.returncode == 0, answer.stderr
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def record_of(document: dict[str, Any], server: Hand) -> dict[str, Any]:
    return next(record for record in document["adopted"] if record["id"] == server.id)


def test_adopted_watched_left_alone_and_stopped_by_name(by_hand: Hand, console: list[str]) -> None:
    loading = status(console)
    record = record_of(loading, by_hand)
    assert (record["name"], record["kind"], record["state"]) == (by_hand.name, "server", "running")
    assert record["log"] == str(by_hand.log) and record["healthy"] is False
    assert "a-secret-word" not in json.dumps(loading)

    watching = run("watch", "here", "--log", str(by_hand.log), "--until-ready", *console)
    assert watching.returncode == 0, watching.stderr
    assert watching.stdout.strip() == f"{by_hand.name} is ready"
    assert "not ours: it is left alone" in watching.stderr
    phases = [line.split()[1] for line in watching.stderr.splitlines() if line[:7].strip() and line[7:9] == "  "]
    for phase in ("config", "engine", "weights", "server"):
        assert phase in phases, watching.stderr

    by_hand.look()
    assert len(by_hand.living()) >= 2, "the API server and its engine"
    by_hand.ask()
    ready = status(console)
    record = record_of(ready, by_hand)
    assert (record["state"], record["port"], record["healthy"]) == ("ready", by_hand.port, True)
    assert record["serving"]["running"] == 0 and record["serving"]["generated_tokens"] >= 8
    assert set(record["pids"]) <= set(by_hand.living())
    if ready["load"]["job"] == by_hand.id:
        assert ready["load"]["adopted"] is True and ready["load"]["ready"] is True
        assert ready["load"]["phases"], "how the load went, though nobody of ours saw it"
    everyone = by_hand.living()

    for words, code in ((["--yes"], 5), (["--name", "another"], 5), (["--name", by_hand.name, "--readonly"], 5)):
        refused = run("stop", "here", str(by_hand.main.pid), *words, *console)
        assert refused.returncode == code, refused.stderr
    assert by_hand.living() == everyone, "every console that looked has gone, and nothing was touched"

    stopped = run("stop", "here", by_hand.id, "--name", by_hand.name, "--json", *console)
    assert stopped.returncode == 0, stopped.stderr
    document = json.loads(stopped.stdout)
    assert (document["state"], document["pids"]) == ("stopped", [])
    deadline = time.monotonic() + 10
    while by_hand.living() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert by_hand.living() == []
