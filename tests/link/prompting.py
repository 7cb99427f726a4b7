"""A person for the tests: answers from a script and remembers what was asked."""

from __future__ import annotations

from collections.abc import Sequence

from eagle_console.link.prompts import cancelled
from eagle_console.link.questions import Prompt


class Person:
    """Gives the answers in turn; None cancels. More questions than answers are a failure of the test.

    :ivar asked: the questions, in order.
    """

    available = True

    def __init__(self, *answers: str | None) -> None:
        self.answers: Sequence[str | None] = answers
        self.asked: list[Prompt] = []
        self.told: list[str] = []

    async def ask(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        assert len(self.asked) <= len(self.answers), f"one question too many: {prompt.label}"
        answer = self.answers[len(self.asked) - 1]
        if answer is None:
            raise cancelled(prompt)
        return answer

    def tell(self, host: str, words: str) -> None:
        self.told.append(words)
