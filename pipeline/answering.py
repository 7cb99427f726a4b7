"""Greedy answers of a vLLM server with their tokens, a few at once, and its counters."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan.events import SERVER_DIED
from pipeline.plan.measurement import Answer, Counters, read_counters
from pipeline.stages.errors import StageError

REQUEST_SECONDS = 3600.0
LOOK_SECONDS = 0.5
_ROLES = {"human": "user", "user": "user", "system": "system"}


@dataclass(frozen=True)
class Greedy:
    """A server as a source of greedy answers.

    :param base: ``http://HOST:PORT``. :param model: the name under which it serves its model.
    """

    base: str
    model: str

    def answer(self, row: Mapping[str, Any], max_tokens: int) -> Answer:
        """The answer to one row of a prompt file.

        :raises StageError: when the server refuses it, does not answer, or gives no token ids.
        """
        messages = [{"role": _ROLES[turn["from"]], "content": turn["value"]} for turn in row["conversations"]]
        found = self._post(
            "/v1/chat/completions",
            {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "return_token_ids": True},
        )
        try:
            choice = found["choices"][0]
            message = choice["message"]
            reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
            text = reasoning + (message.get("content") or "")
            return Answer(str(row["id"]), tuple(found["prompt_token_ids"]), tuple(choice["token_ids"]), text)
        except (LookupError, TypeError, AttributeError) as error:
            raise self._error(f"Its answer lacks {error}", "/v1/chat/completions") from None

    def answers(
        self, rows: Sequence[Mapping[str, Any]], max_tokens: int, concurrency: int, done: Callable[[int], None]
    ) -> tuple[list[Answer], float]:
        """All answers in the order of the rows, and the seconds that they took together.

        :param done: called with the number of finished answers, a few times a second; what it raises ends the rest.
        """
        began = time.monotonic()
        pool = ThreadPoolExecutor(max_workers=concurrency)
        try:
            asked = [pool.submit(self.answer, row, max_tokens) for row in rows]
            pending = set(asked)
            while pending:
                finished, pending = wait(pending, LOOK_SECONDS, FIRST_COMPLETED)
                for future in finished:
                    future.result()
                done(len(asked) - len(pending))
            return [future.result() for future in asked], time.monotonic() - began
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def gap(self, tokens: Sequence[int], first: Optional[int], other: Optional[int]) -> Optional[float]:
        """How much likelier the verifier holds ``first`` than ``other`` after these tokens; None if it does not say."""
        if first is None or other is None:
            return None
        wish = {"prompt": list(tokens), "max_tokens": 1, "temperature": 0, "logprobs": 20}
        try:
            found = self._post("/v1/completions", {**wish, "return_tokens_as_token_ids": True})
            likely = found["choices"][0]["logprobs"]["top_logprobs"][0]
            return float(likely[f"token_id:{first}"]) - float(likely[f"token_id:{other}"])
        except (StageError, LookupError, TypeError, ValueError):
            return None

    def text(self, token: Optional[int]) -> str:
        """The text of one token; empty for none, its number where the server does not say."""
        if token is None:
            return ""
        try:
            return str(self._post("/detokenize", {"tokens": [token]})["prompt"])
        except (StageError, LookupError, TypeError):
            return f"<{token}>"

    def counters(self) -> Counters:
        """The speculative-decoding counters now.

        :raises StageError: when they cannot be read.
        """
        try:
            with urllib.request.urlopen(f"{self.base}/metrics", timeout=30) as answer:
                return read_counters(answer.read().decode("utf-8", "replace"))
        except (OSError, ValueError) as error:
            raise self._error(f"It gives no counters: {error}", "/metrics") from None

    def _post(self, path: str, data: Mapping[str, Any]) -> Any:
        body = json.dumps({"model": self.model, **data}).encode()
        request = urllib.request.Request(f"{self.base}{path}", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._error(f"It refuses: {error.read(500).decode('utf-8', 'replace')}", path) from None
        except (OSError, ValueError) as error:
            raise self._error(f"It does not answer: {error}", path) from None

    def _error(self, cause: str, path: str) -> StageError:
        remedy = "See the server's log in the job's directory."
        return StageError(f"{cause}.", file=f"{self.base}{path}", remedy=remedy, klass=SERVER_DIED)
