"""The agent as a real process: hello, requests, subscriptions, lease, and consoles that do not behave."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from agent_process import ROOT, AgentProcess
from fixtures.interpreters import AGENT_VERSIONS, interpreter, vendor

from remote.procfs import machine_id
from remote.protocol.codec import MAX_FRAME_BYTES, to_wire
from remote.protocol.jobs import JobEvent, JobSpec

SLOW_AGENT = [sys.executable, str(Path(__file__).parent / "slow_agent.py")]


def make_job(workspace: Path, log: bytes, events: int = 0) -> tuple[str, Path]:
    """A job directory with nothing but what the store needs to know it."""
    job_id = "check-20261130-120000-abcd"
    directory = workspace / ".eagle_console" / "jobs" / job_id
    directory.mkdir(parents=True)
    spec = JobSpec(job_id, "check", "task", ("true",), "/", {}, time.time(), machine_id(), "here", "me")
    (directory / "spec.json").write_text(json.dumps(to_wire(spec)))
    (directory / "stage.log").write_bytes(log)
    lines = [json.dumps(to_wire(JobEvent(seq, 1.0, "phase", f"event {seq}"))) + "\n" for seq in range(1, events + 1)]
    (directory / "events.jsonl").write_text("".join(lines))
    return job_id, directory


def test_the_hello_says_who_and_where(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        hello = agent.hello(tmp_path)
        assert (hello["t"], hello["protocol"], hello["workspace"]) == ("agent", 1, str(tmp_path))
        assert hello["pid"] == agent.process.pid
        assert hello["machine_id"] == machine_id()
        assert not hello["readonly"]
        assert set(hello["topics"]) == {"gpus", "host", "disk", "jobs", "adopted", "events", "log"}


def test_a_readonly_console_gets_a_readonly_agent(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        assert agent.hello(tmp_path, readonly=True)["readonly"]
        answer = agent.request("launch", stage="check")
        assert answer["error"]["code"] == "refused"


def test_the_end_of_input_ends_it_with_a_bye() -> None:
    with AgentProcess() as agent:
        agent.hello()
        agent.end_input()
        assert agent.receive() == {"t": "bye", "reason": "end of input"}
        assert agent.wait() == 0


def test_a_console_that_stops_pinging_loses_its_lease() -> None:
    with AgentProcess(EAGLE_CONSOLE_LEASE_SECONDS="0.8") as agent:
        agent.hello()
        for n in range(4):
            time.sleep(0.3)
            agent.send(t="ping", n=n)
            assert agent.receive()["n"] == n
        started = time.monotonic()
        assert "silent" in agent.receive()["reason"]
        assert 0.5 < time.monotonic() - started < 5
        assert agent.wait() == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not json\n", "not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b'{"t": "ping"}\n', "lacks the field n"),
        (b'{"t": "ping", "n": "one"}\n', "wrong type"),
        (b'{"t": "agent"}\n', "lacks the field"),
        (b'{"t": "pong", "n": 1, "mono": 1.0}\n', "does not belong here"),
        (b"x" * (MAX_FRAME_BYTES + 1), "over the limit"),
    ],
    ids=["text", "list", "no number", "wrong type", "no fields", "of the agent", "too long"],
)
def test_a_broken_frame_ends_it(data: bytes, reason: str) -> None:
    with AgentProcess() as agent:
        agent.hello()
        agent.send_bytes(data)
        bye = agent.receive()
        assert bye["t"] == "bye"
        assert reason in bye["reason"]
        assert agent.wait() == 1


def test_half_a_frame_at_the_end_is_broken() -> None:
    with AgentProcess() as agent:
        agent.hello()
        agent.send_bytes(b'{"t": "ping", ')
        agent.end_input()
        assert "middle of a frame" in agent.receive()["reason"]
        assert agent.wait() == 1


@pytest.mark.parametrize("first", [{"t": "ping", "n": 1}, {"t": "hello", "protocol": [99], "client": "x"}])
def test_a_console_of_another_kind_is_sent_away(first: dict[str, object]) -> None:
    with AgentProcess() as agent:
        agent.send(**first)
        assert agent.receive()["t"] == "bye"
        assert agent.wait() == 1


def test_what_it_does_not_know_is_unsupported_or_ignored() -> None:
    with AgentProcess() as agent:
        agent.hello(field_of_the_future=1)
        agent.send(t="frame of the future", n=1)
        assert agent.request("fly")["error"]["code"] == "unsupported"
        agent.send(t="sub", sub=3, topic="weather")
        assert agent.receive_where(t="ev", sub=3)["error"]["code"] == "unsupported"
        assert agent.request("job", 2, job=7)["error"]["code"] == "bad_argument"


def test_a_slow_operation_delays_nobody() -> None:
    with AgentProcess(SLOW_AGENT) as agent:
        agent.hello()
        for number in range(10):
            agent.send(t="req", id=number, op="sleep")
        assert agent.request("host", 99)["ok"]["cpus"] >= 1
        agent.end_input()
        assert agent.receive_where(t="bye")
        assert agent.wait() == 0


def test_too_many_requests_at_once_are_refused() -> None:
    with AgentProcess(SLOW_AGENT) as agent:
        agent.hello()
        for number in range(33):
            agent.send(t="req", id=number, op="sleep")
        refusal = agent.receive_where(t="res")
        assert refusal["id"] == 32
        assert refusal["error"]["code"] == "conflict"


def test_a_crash_of_an_operation_is_an_answer_and_prints_break_nothing() -> None:
    with AgentProcess(SLOW_AGENT) as agent:
        agent.hello()
        assert "ZeroDivisionError" in agent.request("crash")["error"]["message"]
        assert agent.request("noise", 2)["ok"] is not None
        agent.end_input()
        assert "printed by a library" in agent.stderr()


def test_samples_come_at_once_and_stop_when_cancelled() -> None:
    with AgentProcess() as agent:
        agent.hello()
        agent.send(t="sub", sub=5, topic="host", interval=0.1)
        times = [agent.receive_where(t="ev", sub=5)["mono"] for _ in range(4)]
        assert times == sorted(times)
        assert times[3] - times[0] < 5
        agent.send(t="unsub", sub=5)
        agent.request("host")  # what was on its way has come
        agent.send(t="ping", n=1)
        agent.receive_where(t="pong")
        time.sleep(0.4)
        agent.send(t="ping", n=2)
        assert agent.receive()["t"] == "pong"


def test_the_list_of_jobs_comes_again_though_nothing_changes(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=1, topic="jobs", interval=0.5)
        first, second = agent.receive_where(t="ev"), agent.receive_where(t="ev")
        assert first["data"] == second["data"]
        assert first["data"]["jobs"] == []
        assert 1.0 < second["mono"] - first["mono"] < 3.0
        make_job(tmp_path, b"")
        third = agent.receive_where(t="ev")
        assert [job["stage"] for job in third["data"]["jobs"]] == ["check"]


def test_events_are_replayed_and_followed(tmp_path: Path) -> None:
    _, directory = make_job(tmp_path, b"", events=5)
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=1, topic="events", interval=0.1, args={"job": "check", "after": 3})
        assert [agent.receive_where(t="ev")["data"]["seq"] for _ in range(2)] == [4, 5]
        with (directory / "events.jsonl").open("a") as file:
            file.write(json.dumps(to_wire(JobEvent(6, 2.0, "ended", "over"))) + "\n")
        assert agent.receive_where(t="ev")["data"]["text"] == "over"


def test_a_log_is_sent_whole_in_frames_below_the_limit(tmp_path: Path) -> None:
    log = "".join(f"line {n} \x1b[31m\u2588 \U0001f600 end\n" for n in range(20_000)).encode() + b"\xff\xfe\n" * 30_000
    job_id, directory = make_job(tmp_path, log)
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=1, topic="log", interval=0.1, args={"job": job_id, "offset": 0})
        offset, lines = 0, 0
        while offset < len(log):
            event = agent.receive_where(t="ev")
            assert event["error"] is None
            assert event["data"]["offset"] == offset
            offset = event["data"]["next_offset"]
            lines += len(event["data"]["lines"])
        assert lines == 50_000
        with (directory / "stage.log").open("ab") as file:
            file.write(b"appended\n")
        assert agent.receive_where(t="ev")["data"]["lines"] == ["appended"]


def test_topics_of_unknown_jobs_end_with_not_found(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        for number, topic in enumerate(("log", "events")):
            agent.send(t="sub", sub=number, topic=topic, args={"job": "nothing"})
            assert agent.receive_where(t="ev", sub=number)["error"]["code"] == "not_found"


def test_a_console_that_does_not_read_costs_no_memory_and_keeps_no_agent(tmp_path: Path) -> None:
    job_id, _ = make_job(tmp_path, b"a line of a log\n" * 2_000_000)
    with AgentProcess(SLOW_AGENT, EAGLE_CONSOLE_LEASE_SECONDS="3") as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=1, topic="host", interval=0.1)
        agent.receive_where(t="ev", sub=1)
        agent.send(t="sub", sub=2, topic="log", interval=0.1, args={"job": job_id, "offset": 0})
        for number in range(30):
            agent.send(t="req", id=number, op="bulk")
        time.sleep(1.0)
        before = agent.resident_bytes()
        for n in range(100):
            agent.send(t="ping", n=n)
        time.sleep(1.0)
        assert agent.resident_bytes() - before < 5_000_000
        assert agent.resident_bytes() < 60_000_000
        assert agent.wait() == 0  # by its lease, though nothing was read


def test_a_sample_that_waited_says_how_many_it_replaced(tmp_path: Path) -> None:
    job_id, _ = make_job(tmp_path, b"a line of a log\n" * 500_000)
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        agent.send(t="sub", sub=2, topic="log", interval=0.1, args={"job": job_id, "offset": 0})
        agent.send(t="sub", sub=1, topic="host", interval=0.1)
        time.sleep(1.5)
        seen = [agent.receive_where(t="ev", sub=1) for _ in range(3)]
        assert max(event["dropped"] for event in seen) >= 3


@pytest.mark.system
@pytest.mark.parametrize("version", AGENT_VERSIONS)
def test_it_runs_on_other_pythons(version: str, tmp_path: Path) -> None:
    folder = vendor(tmp_path / "vendor", "psutil", "pynvml")
    argv = [str(interpreter(version)), "-m", "remote.agent"]
    with AgentProcess(argv, PYTHONPATH=f"{ROOT}:{folder}", PYTHONDONTWRITEBYTECODE="1") as agent:
        hello = agent.hello(tmp_path)
        assert hello["python"].startswith(version + ".")
        assert hello["psutil"]
        job_id, _ = make_job(tmp_path, b"one\ntwo\n", events=1)
        for number, op in enumerate(("gpus", "host", "disk", "jobs", "stages"), 1):
            assert agent.request(op, number)["error"] is None
        assert agent.request("read_log", 9, job=job_id, tail=1)["ok"]["lines"] == ["two"]


def test_without_psutil_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ImportError('failed to map segment from shared object')\n")
    with AgentProcess(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}") as agent:
        assert agent.hello()["psutil"] is False
        assert agent.request("host")["ok"]["memory_total"] > 0
