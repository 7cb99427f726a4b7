"""Answers and their hidden states in one pass: a client of the extraction server that asks for both.

A request with ``return_token_ids`` and ``kv_transfer_params: {"include_output_tokens": true}`` answers with the tokens
and the path of a file with the states of prompt and answer, all but the last token's, which is never an input (vLLM
0.32, ``ExampleHiddenStatesConnector.request_finished``). So a row is its tokens without the last one.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import http.client
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

from pipeline import rows, states
from pipeline.plan import budget, quality
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun
from pipeline.verifier_server import Served

ATTEMPTS = 4
POLL_SECONDS = 0.5
CHECK_SECONDS = 3.0
BACKOFF_SECONDS = 2.0
_TRY_AGAIN = (408, 409, 425, 429)


class _Failed(Exception):
    """A prompt has no answer; the message says why."""


def server_values(stage: StageRun, length: int) -> dict[str, Any]:
    """What the extraction server is started with."""
    config = verifying.config(stage)
    return states.server_values(stage, config, states.bounds(stage, config, length))


def ask(stage: StageRun, served: Served, prompts: Sequence[rows.Row], total: int) -> None:
    """Asks for every prompt and appends the rows to ``responses.jsonl``, a row after its file.

    Prompts without an answer are written to ``responses.errors.jsonl`` and asked again by the next run.

    :param total: of all prompts of the run, for the count.
    :raises StageError: when the server died or the disk is almost full.
    """
    stage.run.captured.mkdir(parents=True, exist_ok=True)
    client = _Client(stage, served)
    kept, begin = total - len(prompts), time.monotonic()
    done = failed = 0
    checked = begin
    pool = concurrent.futures.ThreadPoolExecutor(int(stage.parameters["concurrency"]), "ask")
    errors = stage.run.responses.with_name("responses.errors.jsonl")
    try:
        pending = {pool.submit(client.conversation, row): str(row["id"]) for row in prompts}
        while pending:
            finished, _ = concurrent.futures.wait(pending, POLL_SECONDS, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                prompt = pending.pop(future)
                try:
                    _append(stage.run.responses, future.result())
                    done += 1
                except _Failed as error:
                    _append(errors, [{"id": prompt, "metadata": {"error": str(error)}}])
                    failed += 1
            now = time.monotonic()
            stage.count(kept + done, total, "prompts", done / (now - begin) if done else None)
            stage.check_stop()
            if now - checked > CHECK_SECONDS:
                checked = now
                served.check()
                states.watch_room(stage.run.data)
    finally:
        client.close()
        pool.shutdown(wait=False, cancel_futures=True)
    if failed:
        states.watch_room(stage.run.data)
        stage.message(f"{failed} prompts have no answer; see {errors.name}.", "warning")


def check(stage: StageRun) -> int:
    """Looks at the file of every row, removes those of no row, and returns how many there are.

    :raises StageError: when a row has no whole file.
    """
    shape = states.shape_of(verifying.config(stage))
    folder = stage.run.captured
    states.remove_locks(folder)
    wanted = {}
    for row in rows.read(stage.run.responses):
        path = path_of(folder, row)
        wanted[path.name] = path
        wrong = states.problem(path, len(row["input_ids"]), shape)
        if wrong:
            raise StageError(
                f"Its hidden states are not whole: {wrong}.",
                file=str(path),
                remedy="Remove the file and its row, run again.",
            )
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    stage.evidence("states captured", len(wanted), "files", bool(wanted))
    return len(wanted)


def path_of(folder: Path, row: rows.Row) -> Path:
    """The file of a row's states."""
    return folder / f"{row['id']}.safetensors"


class _Client:
    """Asks one conversation after the other, each in a thread of its own. Closing it ends what is open."""

    def __init__(self, stage: StageRun, served: Served) -> None:
        parts = urlsplit(served.base)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._model = served.model
        self._folder = stage.run.captured
        self._shape = states.shape_of(verifying.config(stage))
        self._max_tokens = int(stage.parameters["max_tokens"])
        self._temperature: Optional[float] = stage.parameters["temperature"]
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._rate: Optional[float] = None  # tokens a second of one sequence, smoothed

    def conversation(self, prompt: rows.Row) -> list[rows.Row]:
        """A row for each answer of the conversation.

        :raises _Failed: when one cannot be had.
        """
        found: list[rows.Row] = []
        messages: list[dict[str, str]] = []
        for turn in prompt["conversations"]:
            if turn["from"] == "system":
                messages.append({"role": "system", "content": turn["value"]})
                continue
            messages.append({"role": "user", "content": turn["value"]})
            row, content = self._answer(str(prompt["id"]), len(found), messages)
            found.append(row)
            messages.append({"role": "assistant", "content": content})
            if row["metadata"]["finish_reason"] == "length":
                break
        return found

    def close(self) -> None:
        """No new request begins, and the open ones fail."""
        self._closed.set()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    if connection.sock is not None:
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def _answer(self, prompt: str, number: int, messages: list[dict[str, str]]) -> tuple[rows.Row, str]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": self._max_tokens,
            "return_token_ids": True,
            "kv_transfer_params": {"include_output_tokens": True},
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        answer = self._post(body)
        try:
            choice = answer["choices"][0]
            asked, said = list(answer["prompt_token_ids"]), list(choice["token_ids"])
            source = Path(answer["kv_transfer_params"]["hidden_states_path"])
            message = choice["message"]
        except (KeyError, IndexError, TypeError) as error:
            raise _Failed(f"the server's answer lacks {error}: it must be an extraction server") from None
        if len(said) < 2:
            raise _Failed("the answer is empty")
        tokens = [*asked, *said][:-1]
        content, reasoning = str(message.get("content") or ""), quality.reasoning_of(message)
        row = {
            "id": f"{prompt}_gen{number}",
            "primary_id": prompt,
            "input_ids": tokens,
            "loss_mask": [0] * len(asked) + [1] * (len(said) - 1),
            "text": f"<think>{reasoning}</think>{content}" if reasoning else content,
            "metadata": {"finish_reason": choice.get("finish_reason"), "usage": answer.get("usage") or {}},
        }
        self._keep(source, tokens, path_of(self._folder, row))
        return row, content

    def _keep(self, source: Path, tokens: list[int], target: Path) -> None:
        """Gives the server's file its name, once it is whole and holds these tokens' states."""
        try:
            states.wait_until_written(source)
            wrong = states.problem(source, len(tokens), self._shape)
            if not wrong and states.tokens_of(source) != tokens:
                wrong = "its tokens are others than the answer's"
            if wrong:
                raise _Failed(f"{source}: {wrong}")
            if os.stat(source).st_dev == os.stat(self._folder).st_dev:
                os.replace(source, target)
                return
            partial = target.with_name(f".{target.name}.new")
            shutil.copyfile(source, partial)
            os.replace(partial, target)
            source.unlink()
        except OSError as error:
            raise _Failed(f"{source}: {error.strerror or error}") from None

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        reason = "the work was ended"
        for attempt in range(ATTEMPTS):
            if self._closed.wait(BACKOFF_SECONDS * attempt):
                break
            begin = time.monotonic()
            connection = http.client.HTTPConnection(
                *self._address, timeout=budget.request_seconds(self._max_tokens, self._rate)
            )
            with self._lock:
                self._open.add(connection)
            try:
                connection.request(
                    "POST", "/v1/chat/completions", data, {"Content-Type": "application/json", "Connection": "close"}
                )
                response = connection.getresponse()
                text = response.read()
                if response.status == 200:
                    return self._measured(json.loads(text), time.monotonic() - begin)
                reason = f"HTTP {response.status}: {text[:300].decode('utf-8', 'replace')}"
                if response.status < 500 and response.status not in _TRY_AGAIN:
                    break
            except (OSError, ValueError, http.client.HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
            finally:
                with self._lock:
                    self._open.discard(connection)
                connection.close()
        raise _Failed(reason)

    def _measured(self, answer: dict[str, Any], seconds: float) -> dict[str, Any]:
        tokens = (answer.get("usage") or {}).get("completion_tokens") or 0
        if tokens and seconds > 0:
            rate = tokens / seconds
            self._rate = rate if self._rate is None else 0.9 * self._rate + 0.1 * rate
        return answer


def _append(path: Path, found: Sequence[rows.Row]) -> None:
    """Appends rows in one write, so that a kill leaves whole conversations or a torn end that a repair removes."""
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode("utf-8", "surrogatepass")
    with open(path, "ab", buffering=0) as file:
        if file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
