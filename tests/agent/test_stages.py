"""Stages as processes: what they leave behind, how they are stopped, and what they say about bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fixtures.small_disk import small_disk
from fixtures.stages import Workspace, finished, prompts, wait_for

from pipeline.plan import events


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def source(workspace: Workspace, text: str | None = None, name: str = "source.jsonl") -> str:
    path = workspace.root / name
    path.write_text(text if text is not None else "".join(json.dumps(row) + "\n" for row in prompts()))
    return str(path)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_prompt_set_is_drawn_once_and_again_only_when_something_changed(workspace: Workspace) -> None:
    path = source(workspace, "".join(json.dumps(row) + "\n" for row in [*prompts(), *prompts()[:7]]))
    first = workspace.run("prompts", source=path, samples=40, held_out=12)
    assert first.code == 0, first.output
    run = workspace.run_of()
    chosen, aside = rows(run.prompts), rows(run.held_out)
    assert len(chosen) == 40 and len(aside) == 12
    assert len({row["id"] for row in [*chosen, *aside]}) == 52
    assert first.evidence["duplicates left out"] == 7
    stamp = run.prompts.stat().st_mtime_ns

    second = workspace.run("prompts", source=path, samples=40, held_out=12)
    assert second.code == 0 and "up to date" in second.messages and run.prompts.stat().st_mtime_ns == stamp
    assert second.evidence == first.evidence

    third = workspace.run("prompts", source=path, samples=48, held_out=12)
    assert third.code == 0 and "samples was 40 and is 48" in third.messages
    assert {row["id"] for row in chosen} <= {row["id"] for row in rows(run.prompts)}

    run.held_out.write_text("")
    fourth = workspace.run("prompts", source=path, samples=48, held_out=12)
    assert "its output" in fourth.messages and len(rows(run.held_out)) == 12


@pytest.mark.system
def test_a_full_disk_ends_the_stage_with_its_reason_and_leaves_the_old_work(tmp_path: Path) -> None:
    rows_of = [{"prompt": f"{number} {'x' * 2000}"} for number in range(200)]
    with small_disk(tmp_path / "disk", 1024**2) as disk:
        workspace = Workspace(disk.root)
        path = source(Workspace(tmp_path), "".join(json.dumps(row) + "\n" for row in rows_of))
        assert workspace.run("prompts", source=path, samples=100, held_out=0).code == 0
        run = workspace.run_of()
        before = run.prompts.read_bytes()
        for left in (16_384, 100_000, 300_000):
            disk.fill(but=left)
            ended = workspace.run("prompts", source=path, samples=200, held_out=0)
            assert ended.code == 1 and ended.failure is not None, ended.output
            assert ended.failure.klass == "disk_full" and ended.failure.remedy.startswith("Free space")
            assert run.prompts.read_bytes() == before and not list(run.data.glob(".*"))
            disk.empty()
        again = workspace.run("prompts", source=path, samples=200, held_out=0)
        assert again.code == 0 and again.evidence["prompts"] == 200


@pytest.mark.parametrize(
    ("name", "text", "klass", "words"),
    [
        ("s.jsonl", '{"prompt": "a"}\n{broken\n{"x": 1}\n', "broken_lines", "lines 2, 3 (line 2: it is not JSON"),
        ("s.jsonl", "\n", "no_prompts", "It holds no prompt"),
        ("s.json", '[{"prompt": "a"}, {"prompt": ', "stage", "It is not JSON"),
        ("s.json", '[{"prompt": "a"}, 7]', "broken_lines", "line 2: it is not a JSON object"),
        ("s.csv", "a,b\n", "stage", "neither a preset nor the path"),
    ],
)
def test_bad_sources(workspace: Workspace, name: str, text: str, klass: str, words: str) -> None:
    ended = workspace.run("prompts", source=source(workspace, text, name))
    assert ended.code == 1 and ended.failure is not None
    assert ended.failure.klass == klass and words in f"{ended.failure.where} {ended.failure.cause}"
    assert ended.failure.remedy and not workspace.run_of().prompts.exists()
    assert words in ended.output, "the log says it too"


def test_broken_lines_are_passed_over_only_if_asked(workspace: Workspace) -> None:
    path = source(workspace, '{"prompt": "a"}\n{broken\n{"prompt": "b"}\n')
    ended = workspace.run("prompts", source=path, broken_lines="skip", held_out=0)
    assert ended.code == 0 and ended.evidence["prompts"] == 2
    assert "line 2 (" in ended.messages


def test_a_source_of_which_all_would_be_held_out(workspace: Workspace) -> None:
    ended = workspace.run("prompts", source=source(workspace), samples=10)
    assert ended.failure is not None and ended.failure.klass == "no_prompts" and "held_out" in ended.failure.where


def test_a_source_that_is_not_there(workspace: Workspace) -> None:
    ended = workspace.run("prompts", source=str(workspace.root / "nothing.jsonl"))
    assert ended.failure is not None and ended.failure.where.endswith("nothing.jsonl")
    ended = workspace.run("synthesize", verifier=str(workspace.root))
    assert ended.failure is not None and ended.failure.klass == "missing_input"
    assert "Run the stage prompts first" in ended.failure.remedy


def test_a_second_stage_on_the_same_data_is_told_who_holds_it(workspace: Workspace) -> None:
    fifo = workspace.root / "slow.jsonl"
    path = source(workspace)
    assert workspace.run("prompts", source=path, held_out=0).code == 0
    os.mkfifo(fifo)
    process, directory = workspace.start("prompts", source=str(fifo), samples=3)
    lock = workspace.run_of().locks / "data_1k.lock"
    try:
        wait_for(lambda: directory.name in lock.read_text(), process)
        ended = workspace.run("prompts", source=path, samples=20, held_out=0)
        assert ended.code == 1 and ended.failure is not None and ended.failure.klass == "locked"
        assert directory.name in ended.failure.cause
        assert workspace.run("prompts", run="other", source=path, held_out=0).code == 0, "another run is free"
    finally:
        process.kill()
        process.wait()
    assert workspace.run("prompts", source=path, samples=20, held_out=0).code == 0, "a dead holder holds nothing"


def test_a_stop_ends_a_stage_that_waits(workspace: Workspace, hub: Hub) -> None:
    hub.answer.clear()
    hub.root = verifier = model(workspace)
    assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
    process, directory = workspace.start(
        "synthesize", verifier=verifier, endpoint=hub.url, states=True, max_tokens=64, concurrency=2
    )
    wait_for(lambda: hub.asked >= 2, process)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    ended = finished(process, directory)
    assert ended.code == 143 and time.monotonic() - begin < 10
    assert "Stopped" in ended.messages and ended.failure is None
    assert workspace.manifest("synthesize") is None


CONFIG = {"num_hidden_layers": 8, "hidden_size": 16, "vocab_size": 100}


class Hub:
    """A server on loopback that answers its health check, says what it serves, and lets conversations wait.

    ``root`` is the model's folder, ``saved`` where an extraction server writes, ``metrics`` what it measures.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.root = ""
        self.longest = 4096
        self.saved: str | None = "/nowhere/0.safetensors"
        self.metrics = "vllm:spec_decode_num_drafts_total 0"
        self.answer = threading.Event()
        self.answer.set()
        self.status = 503
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/health":
                    self.reply(200, b"")
                elif self.path == "/v1/models":
                    card = {"id": hub.root or "model", "root": hub.root or "model", "max_model_len": hub.longest}
                    self.reply(200, json.dumps({"data": [card]}).encode())
                elif self.path == "/metrics":
                    self.reply(200, hub.metrics.encode())
                else:
                    self.reply(hub.status, b"no hub here")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/completions":
                    saved = {"kv_transfer_params": {"hidden_states_path": hub.saved}} if hub.saved else {}
                    self.reply(200, json.dumps({"choices": [{}], **saved}).encode())
                    return
                hub.asked += 1
                hub.answer.wait(60)
                self.reply(400, b'{"error": "never"}')

            do_HEAD = do_GET  # noqa: N815

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hub():
    server = Hub()
    yield server
    server.answer.set()
    server.server.shutdown()
    server.server.server_close()


def model(workspace: Workspace, **changes: object) -> str:
    folder = workspace.root / "verifier"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return str(folder)


def test_answers_that_cannot_be_had_are_said_and_asked_again(workspace: Workspace, hub: Hub) -> None:
    hub.root = verifier = model(workspace)
    assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
    given = {"verifier": verifier, "endpoint": hub.url, "states": True, "max_tokens": 64}
    ended = workspace.run("synthesize", **given)
    assert ended.code == 1 and ended.failure is not None and ended.failure.klass == "quality"
    assert "missing responses 1 share" in ended.failure.cause
    errors = workspace.run_of().responses.with_name("responses.errors.jsonl")
    assert "HTTP 400" in errors.read_text() and hub.asked == 4, "a refusal is not asked for again in the same run"
    workspace.run("synthesize", **given)
    assert hub.asked == 8


NOT_SAVING = {"saved": None, "metrics": ""}


@pytest.mark.parametrize(
    ("states", "hub_is", "job", "words"),
    [
        (True, NOT_SAVING, None, "it is a plain server, and an extraction server is needed (serve kind=extraction)"),
        (True, {"saved": None}, None, "it is a server with a draft, and an extraction server is needed"),
        (False, {}, None, "it is an extraction server, and a plain server is needed"),
        (False, {**NOT_SAVING, "root": "/models/other"}, None, "its model is /models/other"),
        (False, {**NOT_SAVING, "longest": 512}, None, "It takes sequences of 512 tokens, and up to 8,193 are needed"),
        (True, {}, {"kind": "extraction", "layers": "1,2,3,8"}, "its layers is 1,2,3,8, and 2,4,5,8 is needed"),
        (True, {}, {"kind": "plain"}, "it is a plain server, and an extraction server is needed"),
    ],
)  # fmt: skip
def test_an_endpoint_that_serves_something_else(
    workspace: Workspace, hub: Hub, states: bool, hub_is: dict[str, object], job: dict[str, str] | None, words: str
) -> None:
    hub.root = verifier = model(workspace)
    for name, value in hub_is.items():
        setattr(hub, name, value)
    if job is not None:
        folder = workspace.root / ".eagle_console" / "jobs" / "serve-20260101-000000-abcd"
        folder.mkdir(parents=True)
        parameters = {"verifier": verifier, "port": hub.server.server_port, **job}
        (folder / "spec.json").write_text(json.dumps({"cwd": str(workspace.root), "parameters": parameters}))
    assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
    ended = workspace.run("synthesize", verifier=verifier, endpoint=hub.url, states=states)
    assert ended.code == 1 and ended.failure is not None and words in ended.failure.cause
    assert ended.failure.klass == "endpoint" and ended.failure.where.startswith(hub.url) and ended.failure.remedy
    assert hub.asked == 0, "nothing is asked of the wrong server"


def test_an_endpoint_of_our_own_job_is_known_by_it(workspace: Workspace, hub: Hub) -> None:
    hub.root = verifier = model(workspace)
    folder = workspace.root / ".eagle_console" / "jobs" / "serve-20260101-000000-abcd"
    folder.mkdir(parents=True)
    parameters = {"verifier": verifier, "port": hub.server.server_port, "kind": "extraction"}
    (folder / "spec.json").write_text(json.dumps({"cwd": str(workspace.root), "parameters": parameters}))
    assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
    ended = workspace.run("synthesize", verifier=verifier, endpoint=hub.url, states=True, max_tokens=64)
    assert hub.asked == 4 and "is used" in ended.messages and "layer ids" not in ended.messages


def test_an_endpoint_that_does_not_answer(workspace: Workspace) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        verifier = model(workspace)
        assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
        ended = workspace.run("synthesize", verifier=verifier, endpoint=f"http://127.0.0.1:{port}")
    assert ended.failure is not None and ended.failure.klass == events.SERVER_DIED
    assert ended.failure.where == f"http://127.0.0.1:{port}/health"


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"hidden_size": "big"}, "hidden_size", "positive whole number"),
        ({"num_hidden_layers": 3}, "num_hidden_layers", "no three different layers"),
        ({"text_config": {**CONFIG, "vocab_size": 0}}, "text_config.vocab_size", "positive whole number"),
    ],
)  # fmt: skip
def test_a_verifier_that_cannot_be_used(
    workspace: Workspace, hub: Hub, changes: dict[str, object], where: str, words: str
) -> None:
    verifier = model(workspace, **changes)
    assert workspace.run("prompts", source=source(workspace), samples=4, held_out=0).code == 0
    ended = workspace.run("synthesize", verifier=verifier, states=True, endpoint=hub.url)
    assert ended.failure is not None and ended.failure.where == f"{verifier}/config.json: {where}"
    assert words in ended.failure.cause and ended.failure.remedy


def test_a_draft_vocabulary_larger_than_the_verifiers(workspace: Workspace) -> None:
    ended = workspace.run("vocab", verifier=model(workspace), draft_vocab_size=101)
    assert ended.failure is not None and ended.failure.klass == "vocabulary"
    assert ended.failure.where.endswith("config.json: vocab_size") and "at most 100" in ended.failure.remedy


def test_a_verifier_that_is_not_there(workspace: Workspace) -> None:
    ended = workspace.run("vocab", verifier=str(workspace.root / "nothing"))
    assert ended.failure is not None and "It is no folder" in ended.failure.cause
    ended = workspace.run("vocab")
    assert ended.failure is not None and ended.failure.where == "parameter verifier"


def test_a_stage_opens_as_many_files_as_the_hard_limit_allows(workspace: Workspace) -> None:
    import resource

    fifo = workspace.root / "slow.jsonl"
    os.mkfifo(fifo)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        process, directory = workspace.start("prompts", source=str(fifo), samples=3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        lock = workspace.run_of().locks / "data_1k.lock"
        wait_for(lambda: lock.exists() and directory.name in lock.read_text(), process)
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        soft = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
        assert int(soft) == min(65536, before[1])
    finally:
        process.kill()
        process.wait()
