"""The main job end to end, as a user does it: the command line, SSH to the embedded host, the agent's bundle, the
runner, a real vLLM server on the CPU; the console is killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.chat import ask
from fixtures.ml_environment import free_port

from remote import procfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
READY_SECONDS = 240.0


class Demo:
    """The command line against an embedded host with a home of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        self._environment = {**kept, "HOME": str(home), "EAGLE_CONSOLE_DEMO_HOME": str(home / "demo")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "eagle_console.cli", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *words: str) -> Any:
        process = self.start(*words, "--json")
        out, err = process.communicate(timeout=READY_SECONDS)
        assert process.returncode == 0, (words, out, err)
        return json.loads(out)

    def load_when(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            load: dict[str, Any] = self.json("status", "demo")["load"]
            assert load["error"] is None, load
            if condition(load):
                return load
            time.sleep(0.5)
        raise AssertionError(f"it did not come true: {load}")


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    pipeline = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
    if not (pipeline / "ml" / "bin" / "python").exists():
        if os.environ.get("CI"):
            pytest.fail(f"no pipeline environment in {pipeline}")
        pytest.skip(f"no pipeline environment in {pipeline}")
    return Demo(tmp_path)


def test_from_launch_to_the_last_process(demo: Demo) -> None:
    port = free_port()
    following = demo.start("run", "demo", "serve", f"port={port}", "--follow")
    assert following.stderr is not None
    words = []
    for line in following.stderr:
        words.append(line.split(maxsplit=1)[-1].strip())
        if words[-1] == "engine":
            break
    assert "config" in words, "the phases come while the model loads"
    following.kill()  # the embedded host, the connection and the agent die with it
    following.communicate()

    early = demo.load_when(lambda load: load["phase"])
    assert early["state"] == "running" and not early["ready"] and early["simulated"] is False
    job = early["job"]
    assert [phase["name"] for phase in early["phases"]][:2] == ["config", "engine"]

    load = demo.load_when(lambda load: load["ready"])
    assert load["job"] == job and load["seconds"] > early["seconds"]
    names = [phase["name"] for phase in load["phases"]]
    assert names[:2] == ["config", "engine"] and "weights" in names and names[-1] == "ready"
    assert load["figures"]["checkpoint_gib"] == pytest.approx(0.25, abs=0.02)
    assert "The capital of France is Paris" in ask(port, "What is the capital of France?")

    [found] = [entry for entry in demo.json("jobs", "demo")["jobs"] if entry["id"] == job]
    identities = [identity for pid in found["pids"] if (identity := procfs.identity(pid))]
    titles = [procfs.command_line(identity.pid) or "" for identity in identities]
    assert any("VLLM::EngineCore" in title for title in titles), titles

    stopped = demo.json("stop", "demo", job, "--yes")
    assert stopped["state"] == "stopped" and stopped["error"] is None
    assert [identity for identity in identities if procfs.alive(identity)] == []
    events = demo.json("logs", "demo", job, "--grep", "Application startup complete")
    assert len(events["lines"]) == 1
