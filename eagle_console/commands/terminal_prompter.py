"""Questions of the way in, on the terminal of a command. They go to the terminal itself: stdout and stdin are for data.

The terminal is read without a thread, so that a host that does not wait, or Ctrl-C, ends the question at once.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from eagle_console.link.errors import PromptCancelled
from eagle_console.link.prompts import unanswered
from eagle_console.link.questions import Prompt
from eagle_console.text import clean

TERMINAL = "/dev/tty"

_POLL_SECONDS = 0.05  # kqueue cannot wait for a terminal on macOS
_ANSWER_BYTES = 4096


class TerminalPrompter:
    """The person at the terminal that the command was started from, whatever its stdin and stdout are."""

    @property
    def available(self) -> bool:
        try:
            os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return False
        return True

    async def ask(self, prompt: Prompt) -> str:
        try:
            descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            raise unanswered(prompt) from None
        try:
            with _echo(descriptor, prompt.echo):
                lines = "".join(f"{line}\n" for line in prompt.notes)
                os.write(descriptor, f"{lines}{prompt.label} ".encode(errors="replace"))
                answer = await _line(descriptor)
                if not prompt.echo:
                    os.write(descriptor, b"\n")
        finally:
            os.close(descriptor)
        if answer is None:
            raise PromptCancelled(f"{prompt.host}: the question was not answered: {prompt.label}")
        return answer

    def tell(self, host: str, words: str) -> None:
        print(clean(f"{host}: {words}"), file=sys.stderr, flush=True)  # noqa: T201


async def _line(descriptor: int) -> str | None:
    """The next line that is typed, without its end; None for the end of input (Ctrl-D)."""
    typed = b""
    while not typed.endswith(b"\n"):
        while not select.select([descriptor], [], [], 0)[0]:  # noqa: ASYNC110  # a file is waited for, not an event
            await asyncio.sleep(_POLL_SECONDS)
        data = os.read(descriptor, _ANSWER_BYTES)
        if not data:
            return None
        typed += data
    return typed[:-1].decode(errors="replace")


@contextmanager
def _echo(descriptor: int, wanted: bool) -> Iterator[None]:
    """The terminal with or without echo, and as it was afterwards. What was typed before is thrown away."""
    before = termios.tcgetattr(descriptor)
    during = list(before)
    during[3] = (during[3] | termios.ICANON | termios.ECHO) if wanted else (during[3] | termios.ICANON) & ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, during)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
