"""Questions of a link that keeps itself alive: published with its state, answered by a call from the screen."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from eagle_console.link.prompts import cancelled
from eagle_console.link.publisher import Publisher
from eagle_console.link.questions import Prompt
from eagle_console.state import HostState, LinkState, LinkStatus, with_link


class LinkPrompter:
    """A prompter whose open question is the state of the link: ``LinkState.ASKING`` with the prompt."""

    available = True

    def __init__(self, publisher: Publisher[HostState]) -> None:
        self._publisher = publisher
        self._open: tuple[Prompt, asyncio.Future[str | None]] | None = None

    async def ask(self, prompt: Prompt) -> str:
        before = self._publisher.state.link
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._open = (prompt, answer)
        self._show(replace(before, state=LinkState.ASKING, detail=prompt.label, prompt=prompt))
        try:
            text = await answer
        finally:
            self._open = None
            self._show(before)
        if text is None:
            raise cancelled(prompt)
        return text

    def tell(self, host: str, words: str) -> None:
        self._show(replace(self._publisher.state.link, detail=f"{host}: {words}"))

    def answer(self, prompt: Prompt, text: str | None) -> None:
        """Answers the open question; None cancels it. An answer to another question than the open one is dropped."""
        if self._open is not None and self._open[0] is prompt and not self._open[1].done():
            self._open[1].set_result(text)

    def _show(self, link: LinkStatus) -> None:
        self._publisher.update(with_link(self._publisher.state, link))
