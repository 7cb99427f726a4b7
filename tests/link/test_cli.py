"""The command line as a user runs it: a real process, agent and runner; only vLLM itself is a small script."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fixtures import ml_environment

from remote import procfs

pytestmark = pytest.mark.system  # a minute of real processes


@dataclass(frozen=True)
class Console:
    """A user's home with one profile, ``box``: this machine through the local transport."""

    home: Path
    workspace: Path
    port: int

    @property
    def environment(self) -> dict[str, str]:
        names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CI")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        return {**kept, "HOME": str(self.home), "COLUMNS": "100"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "eagle_console.cli", *words],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, (out, err)
        return json.loads(out)

    def serve(self, *words: str) -> dict[str, Any]:
        job: dict[str, Any] = self.json("run", "box", "serve", f"port={self.port}", "--follow", *words)
        return job


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    python, verifier = ml_environment.make(tmp_path)
    workspace = tmp_path / "workspace"
    (workspace / "output_1k").mkdir(parents=True)
    (workspace / "output_1k" / "model.safetensors").write_bytes(b"x" * 5000)
    config = tmp_path / ".config" / "eagle-console" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[hosts.box]\naddress = "local"\nworkspace = "{workspace}"\npython = "{python}"\nverifier = "{verifier}"\n'
    )
    console = Console(tmp_path, workspace, ml_environment.free_port())
    yield console
    for job in console.json("jobs", "box")["jobs"]:
        if job["state"] in ("starting", "running", "ready", "stopping", "unsupervised"):
            console("stop", "box", job["id"], "--yes", "--force")


def test_a_service_from_launch_to_stop(console: Console) -> None:
    code, out, err = console("run", "box", "serve", f"port={console.port}", "--follow")
    assert code == 0, err
    assert "is ready after" in out and f"http://127.0.0.1:{console.port}/health" in out
    assert f"vllm serve {console.home}/verifier --host 127.0.0.1 --port {console.port}" in err
    words = [line.split(maxsplit=1)[1] for line in err.splitlines() if line[:7].strip().endswith("s")]
    phases = [word for word in words if word in ("config", "engine", "weights", "server")]
    assert phases == ["config", "engine", "weights", "server"]

    status = console.json("status", "box")
    assert status["load"]["state"] == "ready" and status["load"]["ready"] is True
    assert [phase["name"] for phase in status["load"]["phases"]][-1] == "ready"
    assert status["simulated"] is False
    [directory] = status["disk"]["directories"]
    assert (directory["name"], directory["apparent"]) == ("output_1k", 5000) and directory["allocated"] >= 5000
    pids = status["jobs"][0]["pids"]
    assert pids and all(procfs.stat(pid) for pid in pids)

    stopped = console.json("stop", "box", "serve", "--yes")
    assert stopped["state"] == "stopped" and stopped["error"] is None
    assert not [pid for pid in pids if (record := procfs.stat(pid)) and not record.zombie]
    code, _, err = console("stop", "box", "serve", "--yes")
    assert code == 1 and "has already ended" in err


def test_a_failed_start_says_why(console: Console) -> None:
    code, out, err = console("run", "box", "serve", f"port={console.port}", "extra=--fail", "--follow", "--json")
    job = json.loads(out)
    assert code == 1 and job["state"] == "failed" and job["exit_code"] == 1
    assert job["error"]["class"] == "kv_cache_zero"
    assert "No available memory for the cache blocks" in job["error"]["line"]
    assert job["error"]["remedy"] and job["error"]["cause"] in err


def test_ctrl_c_leaves_the_job_running(console: Console) -> None:
    console.serve()
    following = console.start("logs", "box", "serve", "-f")
    assert following.stdout is not None
    assert following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=20)
    assert following.returncode == 130
    assert console.json("jobs", "box")["jobs"][0]["state"] == "ready"


def test_ctrl_c_while_a_load_is_followed_says_that_it_goes_on(console: Console) -> None:
    launching = console.start("run", "box", "serve", f"port={console.port}", "--follow")
    assert launching.stderr is not None
    job = launching.stderr.readline().split()[1]
    launching.send_signal(signal.SIGINT)
    _, err = launching.communicate(timeout=20)
    assert launching.returncode == 130
    assert err.splitlines()[-1] == f"{job} goes on; eagle-console stop box {job} ends it"
    assert console.json("jobs", "box")["jobs"][0]["state"] in ("starting", "running", "ready")


def test_killing_the_console_in_the_middle_loses_nothing(console: Console) -> None:
    following = console.start("run", "box", "serve", f"port={console.port}", "--follow")
    assert following.stderr is not None
    assert "launched" in following.stderr.readline()
    following.kill()
    following.communicate()
    deadline = time.monotonic() + 20
    while (job := console.json("jobs", "box")["jobs"][0])["state"] != "ready" and time.monotonic() < deadline:
        time.sleep(0.2)
    assert job["state"] == "ready"


def test_logs_tail_and_grep(console: Console) -> None:
    console.serve()
    code, out, _ = console("logs", "box", "serve", "--grep", "shards")
    assert code == 0 and [line.split("|")[1].split()[0] for line in out.splitlines()] == ["0/2", "1/2", "2/2"]
    code, out, _ = console("logs", "box", "serve", "--tail", "1")
    assert out.splitlines() == ["INFO:     Application startup complete."]
    code, _, err = console("logs", "box", "serve", "--grep", "(")
    assert code == 2 and "not a regular expression" in err


def test_following_a_log_ends_with_the_job(console: Console) -> None:
    console.serve()
    following = console.start("logs", "box", "serve", "-f")
    assert following.stdout is not None and following.stdout.readline()
    console("stop", "box", "serve", "--yes")
    following.communicate(timeout=20)
    assert following.returncode == 0


def test_a_dry_run_starts_nothing_and_needs_nothing(console: Console) -> None:
    (console.home / "verifier" / "config.json").unlink()
    plan = console.json("run", "box", "serve", "port=1234", "--dry-run")
    assert plan["dry_run"] is True and "--port 1234" in plan["command_line"] and plan["verdict"] == "blocked"
    assert console.json("jobs", "box")["jobs"] == []


def test_a_blocked_launch_is_refused_and_can_be_forced_by_name(console: Console) -> None:
    (console.home / "verifier" / "tokenizer.json").unlink()
    (console.home / "verifier" / "model.safetensors").unlink()
    code, out, err = console("run", "box", "serve", f"port={console.port}", "--json")
    refusal = json.loads(out)["error"]
    assert code == 5 and refusal["class"] == "refused" and "--force" in refusal["remedy"] + refusal["cause"]
    blocked = [
        check["rule"]
        for stage in console.json("stages", "box")["stages"]
        for check in stage["checks"]
        if check["verdict"] == "blocked"
    ]
    force = [word for rule in blocked for word in ("--force", rule)]
    with socket.create_server(("127.0.0.1", console.port)):
        code, _, err = console("run", "box", "serve", f"port={console.port}")
    begin, *said = err.splitlines()
    assert code == 5 and begin == "eagle-console: serve cannot be launched:"
    rules = [line.split(":")[0].strip() for line in said]
    assert sorted(rules[:2]) == ["port", "verifier"] and rules[2:] == rules[:2], "a line a reason, then one a remedy"
    code, _, err = console("run", "box", "serve", f"port={console.port}", *force)
    assert code == 5 and "--yes" in err
    assert console.serve("--yes", *force)["state"] == "ready"


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["run", "box", "serv"], 2, "did you mean 'serve'"),
        (["run", "box", "serve", "prt=1"], 2, "did you mean 'port'"),
        (["run", "box", "serve", "port=70000"], 2, "at most 65535"),
        (["run", "box", "serve", "port"], 2, "not key=value"),
        (["run", "box", "clasic"], 2, "did you mean 'classic'"),
        (["run", "box", "check", "--readonly"], 5, "read-only"),
        (["logs", "box", "nothing"], 1, "nothing"),
        (["disk", "box", "output_9k"], 2, "output_1k"),
        (["stop", "box", "serve"], 1, "serve"),
        (["status", "not a host"], 2, "not a host"),
        (["status", "box", "--config", "/nonexistent.toml"], 2, "no such file"),
        (["status", "nobody@127.0.0.1:1"], 3, "127.0.0.1"),
        (["status", "bxo"], 3, "there is no profile 'bxo'; did you mean 'box'?"),
    ],
)
def test_errors_have_their_exit_code_and_a_sentence(console: Console, words: list[str], code: int, part: str) -> None:
    found, out, err = console(*words)
    assert (found, part in err) == (code, True), (found, out, err)
    assert out == "" and "Traceback" not in err


def test_a_stop_without_a_terminal_needs_yes(console: Console) -> None:
    console.serve()
    code, _, err = console("stop", "box", "serve")
    assert code == 5 and "--yes" in err
    assert console.json("jobs", "box")["jobs"][0]["state"] == "ready"


def test_hosts_and_doctor(console: Console) -> None:
    listed = console.json("hosts")
    assert [host["name"] for host in listed["hosts"]] == ["box"] and listed["config"].endswith("config.toml")
    code, out, _ = console("doctor", "box", "--json")
    checks = {check["rule"]: check["verdict"] for check in json.loads(out)["checks"]}
    assert "blocked" not in checks.values(), out
    assert checks["link"] == checks["agent"] == checks["workspace"] == "ok"
    assert code == 0


def test_a_port_that_our_own_server_holds_is_no_fault_of_the_host(console: Console) -> None:
    console.json("run", "box", "serve", "port=8000", "--follow", "--force", "port", "--yes")
    code, out, _ = console("doctor", "box", "--json")
    stages = [check for check in json.loads(out)["checks"] if check["rule"] == "stage serve"]
    assert code == 0 and ("warning", True) in [(check["verdict"], "8000" in check["reason"]) for check in stages]
    assert "blocked" not in {check["verdict"] for check in stages}


def test_options_may_stand_before_the_command(console: Console) -> None:
    code, out, _ = console("--json", "--timeout", "20", "hosts")
    assert code == 0 and json.loads(out)["hosts"][0]["name"] == "box"


def test_a_closed_pipe_is_no_error(console: Console) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "eagle_console.cli", "status", "box", "--watch"],
        env=console.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_what_is_missing_is_said_where_it_would_be(console: Console) -> None:
    assert "no jobs yet; eagle-console stages box lists what can be run" in console("jobs", "box")[1]
    code, out, _ = console("doctor", "box")
    assert code == 0 and "1 artifact directory\n" in out and " 0 jobs\n" in out and "None" not in out
    with (console.home / ".config" / "eagle-console" / "config.toml").open("a") as config:
        config.write('[hosts.bare]\naddress = "local"\n')
    code, out, _ = console("status", "bare")
    assert "Jobs: the profile names no workspace" in out and "no jobs yet" not in out
    assert all(line == line.rstrip() for line in out.splitlines())
