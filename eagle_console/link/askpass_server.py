"""The console's side of ssh's questions: a private socket that one helper program may use."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eagle_console.link import askpass
from eagle_console.link.errors import PromptCancelled
from eagle_console.link.prompts import Prompter, too_late, unanswered
from eagle_console.link.questions import SshPrompt

_REQUEST_SECONDS = 10.0
_PASSPHRASE = "Enter passphrase for "


class AskpassServer:
    """Answers the questions of one host's ssh while the context lasts.

    :param directory: an empty directory that only the user may enter; it must allow programs to be run.
    :param host: the name to use in questions.
    :ivar stopped: why ssh was ended: a question was cancelled, or its ssh did not wait.
    :ivar unasked: the first question that nobody was there for.
    :ivar answered: the last question that got an answer.
    """

    def __init__(self, directory: Path, host: str, prompter: Prompter) -> None:
        self.stopped: PromptCancelled | None = None
        self.unasked: PromptCancelled | None = None
        self.answered: SshPrompt | None = None
        self._directory = directory
        self._host = host
        self._prompter = prompter
        self._token = secrets.token_hex(32)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def environment(self) -> dict[str, str]:
        """What ssh needs in its environment to ask here."""
        return {"SSH_ASKPASS": str(self._directory / "askpass"), "SSH_ASKPASS_REQUIRE": "force"}

    async def __aenter__(self) -> Self:
        token = self._directory / askpass.TOKEN
        token.touch(mode=0o600)
        token.write_text(self._token)
        program = self._directory / "askpass"
        words = [sys.executable, "-I", askpass.__file__, str(self._directory)]
        program.touch(mode=0o700)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$1"\n')
        path = self._directory / askpass.SOCKET
        self._server = await asyncio.start_unix_server(self._accept, path)
        path.chmod(0o600)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await asyncio.wait_for(reader.readline(), _REQUEST_SECONDS))
            if hmac.compare_digest(str(request.get("token")).encode(), self._token.encode()):
                writer.write(json.dumps(await self._reply(request, reader)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, AttributeError, TimeoutError):
            pass  # not our helper, or it has gone
        finally:
            writer.close()

    async def _reply(self, request: Mapping[str, Any], reader: asyncio.StreamReader) -> dict[str, object]:
        prompt = SshPrompt(self._host, str(request.get("question", "")))
        if request.get("kind") == "none":  # a security key waits for a touch; ssh ends the helper when it is done
            self._prompter.tell(self._host, prompt.label)
            await reader.read()
            return {"skip": True}
        if self.stopped is not None:
            return {}
        if not self._prompter.available:
            self.unasked = self.unasked or unanswered(prompt)
            # Without its passphrase ssh passes a key over; a password that it does not get, it sends empty.
            return {"skip": True} if prompt.text.startswith(_PASSPHRASE) else {}
        asking = asyncio.ensure_future(self._prompter.ask(prompt))
        gone = asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                self.answered = prompt
                return {"answer": asking.result()}
            self.stopped = too_late(prompt)
        except PromptCancelled as error:
            self.stopped = error
        finally:
            asking.cancel()
            gone.cancel()
        return {}
