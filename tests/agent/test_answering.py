"""Greedy answers and counters from a server of twenty lines; real vLLM answers in the slow tests."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.answering import Greedy
from pipeline.stages.errors import StageError, Stopped

ROWS = [
    {"id": f"p{n}", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": f"{n}"}]}
    for n in range(6)
]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.slow = False

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        if self.server.slow:
            time.sleep(5)
        if self.path == "/v1/chat/completions":
            number = int(body["messages"][-1]["content"])
            if number == 99:
                return self._answer({"error": "too long"}, 400)
            choice = {"message": {"content": " b", "reasoning": "a"}, "token_ids": [number, number + 1]}
            return self._answer({"choices": [choice], "prompt_token_ids": [1, 2, number]})
        if self.path == "/v1/completions":
            likely = {"token_id:7": -0.1, "token_id:8": -0.35}
            return self._answer({"choices": [{"logprobs": {"top_logprobs": [likely]}}]})
        if self.path == "/detokenize":
            return self._answer({"prompt": f"<{body['tokens'][0]}>"})
        return self._answer({}, 404)

    def do_GET(self) -> None:
        self._answer("vllm:spec_decode_num_drafts_total 4.0\nvllm:spec_decode_num_accepted_tokens_total 6.0\n")

    def _answer(self, data: Any, status: int = 200) -> None:
        raw = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_answers_come_in_the_order_of_the_prompts_and_are_greedy(server: Server) -> None:
    counted: list[int] = []
    answers, seconds = Greedy(server.base, "m").answers(ROWS, 32, 4, counted.append)
    assert [answer.prompt for answer in answers] == [f"p{n}" for n in range(6)]
    assert answers[2].tokens == (2, 3) and answers[2].prompt_tokens == (1, 2, 2)
    assert answers[2].text == "a b", "reasoning counts as text"
    assert counted[-1] == 6 and seconds > 0
    assert all(body["temperature"] == 0 and body["max_tokens"] == 32 and body["model"] == "m" for body in server.asked)
    assert server.asked[0]["messages"][0] == {"role": "system", "content": "s"}


def test_a_refused_prompt_ends_the_measurement_with_the_servers_words(server: Server) -> None:
    rows = [*ROWS[:2], {"id": "x", "conversations": [{"from": "human", "value": "99"}]}]
    with pytest.raises(StageError, match="too long"):
        Greedy(server.base, "m").answers(rows, 32, 1, lambda done: None)


def test_a_stop_does_not_wait_for_answers_that_are_under_way(server: Server) -> None:
    server.slow = True

    def stop(done: int) -> None:
        raise Stopped

    began = time.monotonic()
    with pytest.raises(Stopped):
        Greedy(server.base, "m").answers(ROWS, 32, 2, stop)
    assert time.monotonic() - began < 3


def test_the_gap_between_two_tokens_and_their_texts(server: Server) -> None:
    greedy = Greedy(server.base, "m")
    assert greedy.gap([1, 2], 7, 8) == pytest.approx(0.25)
    assert greedy.gap([1, 2], 7, 9) is None and greedy.gap([1], None, 8) is None
    assert server.asked[0]["prompt"] == [1, 2] and server.asked[0]["max_tokens"] == 1
    assert greedy.text(7) == "<7>" and greedy.text(None) == ""


def test_counters_of_a_server_and_of_one_that_is_gone(server: Server) -> None:
    counters = Greedy(server.base, "m").counters()
    assert counters.acceptance_length == 2.5
    with pytest.raises(StageError, match="no counters"):
        Greedy("http://127.0.0.1:9", "m").counters()
