"""Adopted programs over the wire and on the command line: a real agent, a real console, a program started by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adopting import ByHand
from agent_process import AgentProcess
from jobkit import until

from remote import procfs

ROOT = Path(__file__).parents[2]
LOG = (
    "INFO 11-30 10:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 11-30 10:00:02 [core.py:1] Starting to load model /models/tiny-model...",
    "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ByHand]:
    program = ByHand(tmp_path / "theirs", redirect="> serve.log 2>&1").start(("VLLM::EngineCore",), LOG)
    yield program
    program.end()


@pytest.fixture
def console(tmp_path: Path) -> list[str]:
    (tmp_path / "workspace").mkdir()
    config = tmp_path / "config.toml"
    config.write_text(f'[hosts.here]\naddress = "local"\nworkspace = "{tmp_path / "workspace"}"\n')
    return ["--config", str(config)]


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "eagle_console.cli", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


# Over the wire


def test_the_topic_tells_of_it_and_the_log_can_be_followed(tmp_path: Path, server: ByHand) -> None:
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=1, topic="adopted", interval=1.0)

        def mine() -> dict[str, Any]:
            records: list[dict[str, Any]] = agent.receive_where(t="ev", sub=1)["data"]["records"]
            return next((record for record in records if record["id"] == server.id), {})

        record = until(lambda: mine() or None)
        assert record["main"]["start_ticks"] == server.main.start_ticks
        agent.send(t="sub", sub=2, topic="log", interval=0.1, args={"job": server.id, "tail": 2})
        assert agent.receive_where(t="ev", sub=2)["data"]["lines"] == list(LOG[1:])
        with open(server.folder / "serve.log", "a") as log:
            log.write("and one more\n")
        assert agent.receive_where(t="ev", sub=2)["data"]["lines"] == ["and one more"]


def test_a_stop_without_identity_or_name_is_no_stop(tmp_path: Path, server: ByHand) -> None:
    pid, ticks = server.main.pid, server.main.start_ticks
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        for number, (args, code) in enumerate(
            [
                ({}, "bad_argument"),
                ({"pid": pid}, "bad_argument"),
                ({"pid": pid, "start_ticks": ticks}, "bad_argument"),
                ({"pid": pid, "start_ticks": ticks, "name_typed": ""}, "bad_argument"),
                ({"pid": pid, "start_ticks": str(ticks), "name_typed": "tiny-model"}, "bad_argument"),
                ({"pid": pid, "start_ticks": ticks, "name_typed": "tiny"}, "refused"),
                ({"pid": 1, "start_ticks": 0, "name_typed": "init"}, "not_found"),
                ({"pid": os.getpid(), "start_ticks": 0, "name_typed": "pytest"}, "not_found"),
            ],
            10,
        ):
            assert agent.request("stop_adopted", number, **args)["error"]["code"] == code, args
        assert procfs.alive(server.main) and procfs.alive(server.engines[0])
        agent.end_input()
        agent.wait()
    assert procfs.alive(server.main), "it does not depend on who looked at it"


# On the command line


def test_status_shows_it_in_words_and_as_json(server: ByHand, console: list[str]) -> None:
    code, out, _ = run("status", "here", "--json", *console)
    document = json.loads(out)
    record = next(record for record in document["adopted"] if record["id"] == server.id)
    assert code == 0 and record["adopted"] is True and record["progress"]["done"] == 1
    assert (record["log"], record["pid"]) == (str(server.folder / "serve.log"), server.main.pid)
    assert document["load"]["adopted"] is True and document["training"] is None
    _, out, _ = run("status", "here", *console)
    row = next(line for line in out.splitlines() if server.id in line and "serve.log" in line)
    assert "Running here, not ours:" in out and "tiny-model" in row and "1/4 shards" in row


def test_watch_follows_to_ready_and_leaves_it_alone(server: ByHand, console: list[str]) -> None:
    watching = start("watch", "here", "--log", str(server.folder / "serve.log"), "--until-ready", *console)
    assert watching.stderr is not None and watching.stdout is not None
    said = ""
    while "1/4 shards" not in said:
        line = watching.stderr.readline()
        assert line, said
        said += line
    assert "watching" in said and "not ours: it is left alone" in said and "serve.log (its standard output)" in said
    server.become_ready()
    assert watching.wait(30) == 0
    assert watching.stdout.read() == "tiny-model is ready\n"
    assert procfs.alive(server.main)


def test_watch_ends_with_the_process_and_tells_the_cause_in_its_log(server: ByHand, console: list[str]) -> None:
    watching = start("watch", "here", "--pid", str(server.main.pid), "--json", *console)
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["id"], first["state"]) == (server.id, "running")
    with open(server.folder / "serve.log", "a") as log:
        log.write("ERROR 11-30 10:00:03 [core.py:1] OSError: [Errno 98] Address already in use\n")
    os.kill(server.main.pid, signal.SIGKILL)
    out, _ = watching.communicate(timeout=30)
    last = json.loads(out.splitlines()[-1])
    assert last["state"] == "gone" and "in use" in last["error"]["line"]
    assert watching.returncode == 1


def test_watch_shows_the_steps_of_a_training_log(tmp_path: Path, console: list[str]) -> None:
    recorded = (ROOT / "tests" / "fixtures" / "speculators_train.log").read_text().split("\n")
    lines = [line.partition("\t")[2] for line in recorded if line]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines[:500]) + "\n")
    watching = start("watch", "here", "--log", str(log), *console)
    assert watching.stderr is not None
    said = [watching.stderr.readline() for _ in range(3)]
    with open(log, "a") as file:
        file.write("\n".join(lines[500:]) + "\n")
    while "step 49/~49" not in said[-1]:
        said.append(watching.stderr.readline())
        assert said[-1], said
    assert "epoch 3/3" in said[-1] and "loss 10.51" in said[-1]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 130


def test_logs_and_stop_of_what_is_not_ours(server: ByHand, console: list[str]) -> None:
    code, out, _ = run("logs", "here", str(server.main.pid), "--tail", "1", *console)
    assert (code, out) == (0, LOG[-1] + "\n")
    code, _, err = run("stop", "here", str(server.main.pid), "--yes", *console)
    assert code == 5 and "--name" in err and procfs.alive(server.main)
    code, _, err = run("stop", "here", str(server.main.pid), "--name", "wrong", *console)
    assert code == 5 and "tiny-model" in err and procfs.alive(server.main)
    code, out, _ = run("stop", "here", server.id, "--name", "tiny-model", *console)
    assert code == 0 and "nothing is left of it" in out
    assert not procfs.alive(server.main) and not procfs.alive(server.engines[0])


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["watch", "here"], 2, "--log FILE"),
        (["watch", "here", "--log", "relative"], 2, "not an absolute path"),
        (["watch", "here", "--log", "/no/such/file"], 1, "there is no file"),
        (["stop", "here", "serve", "--name", "x"], 2, "--name"),
        (["stop", "here", "4194305", "--name", "x"], 1, "not ours"),
        (["logs", "here", "4194305"], 1, "adopted-4194305"),
    ],
)
def test_what_makes_no_sense_is_said(words: list[str], code: int, told: str, console: list[str]) -> None:
    result, _, err = run(*words, *console)
    assert (result, told in err) == (code, True), err
