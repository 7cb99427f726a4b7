"""The replays of the embedded host, run as the stages that they stand in for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixtures.ml_environment import free_port

from eagle_console.demo.server import RECORDINGS

REPLAY = RECORDINGS / "replay.py"


@contextmanager
def replay(recording: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", str(REPLAY), str(recording), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def pieces(recording: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in recording.read_text().splitlines()]


@pytest.mark.parametrize("name", ["serve", "check"])
def test_recordings_are_in_order_and_hold_no_traces_of_their_machine(name: str) -> None:
    header, *rest = pieces(RECORDINGS / f"{name}.jsonl")
    assert set(header) == {"recorded", "vllm", "what"}
    times = [piece["at"] for piece in rest]
    assert times == sorted(times)  # type: ignore[type-var]
    text = "".join(str(piece["text"]) for piece in rest)
    assert "/root" not in text
    assert "/work" not in text


def test_serve_prints_what_was_recorded_and_is_healthy_only_at_its_end() -> None:
    port = free_port()
    with replay(RECORDINGS / "serve.jsonl", "--port", str(port), "--speed", "100") as process:
        assert process.stdout
        first = process.stdout.readline()
        assert first.startswith(b"REPLAY of a run recorded on 2026-")
        with pytest.raises(urllib.error.URLError):
            answer(port, "/health")
        output = first
        while b"Application startup complete" not in output:
            line = process.stdout.readline()
            assert line
            output += line
        assert answer(port, "/health") == (200, "")
        assert answer(port, "/v1/models") == (503, '{"error": "this is a replay"}\n')
        recorded = "".join(str(piece["text"]) for piece in pieces(RECORDINGS / "serve.jsonl")[1:]).encode()
        assert output.endswith(recorded)
        assert b"\r" in recorded
        process.terminate()
        assert process.wait(5) == 0


def test_the_speed_of_the_recording(tmp_path: Path) -> None:
    recording = tmp_path / "x.jsonl"
    lines = [
        {"recorded": "2026-01-01", "vllm": "0", "what": "x"},
        {"at": 0.0, "text": "a\n"},
        {"at": 3.0, "text": "b\n"},
    ]
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    start = time.monotonic()
    with replay(recording, "--speed", "10") as process:
        assert process.wait(20) == 0
        assert time.monotonic() - start >= 0.3
        assert process.stdout
        assert process.stdout.read().endswith(b"a\nb\n")


def test_terminated_in_the_middle_it_ends_well() -> None:
    with replay(RECORDINGS / "serve.jsonl", "--port", str(free_port())) as process:
        assert process.stdout
        process.stdout.readline()
        process.terminate()
        assert process.wait(5) == 0


def test_a_port_that_is_taken_is_said_as_vllm_says_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with replay(RECORDINGS / "serve.jsonl", "--port", str(taken.getsockname()[1])) as process:
            assert process.wait(20) == 1
            assert process.stdout
            assert b"[Errno 98] error while attempting to bind" in process.stdout.read()


def test_check_ends_by_itself() -> None:
    with replay(RECORDINGS / "check.jsonl", "--port", "1", "--speed", "100") as process:
        assert process.wait(20) == 0
