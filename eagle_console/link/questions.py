"""What can be asked of a person while a connection is made: records only, in words that are safe to show.

A server writes the words of its own questions. They are cleaned here, and shown as the words of that host, so that a
hostile one cannot imitate a question of the console or of another host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from eagle_console.text import clean, clean_lines

WORDS = 200
"""Characters of a question that are shown."""

LINE_WORDS = 340
"""Characters of one line of a server's instructions: a long address to open must be whole."""

ROWS = 10
ROW_CHARACTERS = 68
"""So much of a server's instructions fits above the question on the smallest screen."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """A question that wants one line as its answer. Two are never equal: each wants an answer of its own.

    :ivar host: who wants the answer: the host's name, or the jump host's.
    """

    host: str

    @property
    def title(self) -> str:
        """What kind of question it is, in a few words of ours."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines to show above the question."""
        return ()

    @property
    def label(self) -> str:
        """The question itself."""
        raise NotImplementedError

    @property
    def echo(self) -> bool:
        """Whether the answer may be shown while it is typed."""
        return False

    @property
    def without_terminal(self) -> str:
        """What to do where there is nobody to ask."""
        return "run it in a terminal, which can ask; or let a key of an ssh-agent log in"


@dataclass(frozen=True, eq=False)
class PassphrasePrompt(Prompt):
    """The passphrase of a key file on this machine. It never leaves this machine."""

    key_file: str
    attempt: int = 1

    @property
    def title(self) -> str:
        return "passphrase of a key"

    @property
    def notes(self) -> tuple[str, ...]:
        wrong = ("The last one was wrong.",) if self.attempt > 1 else ()
        return (*wrong, f"To log in to {clean(self.host, WORDS)} with your key. The passphrase stays on this machine.")

    @property
    def label(self) -> str:
        return f"Passphrase of {clean(self.key_file, WORDS)}:"

    @property
    def without_terminal(self) -> str:
        return f"ssh-add {self.key_file}"


@dataclass(frozen=True, eq=False)
class PasswordPrompt(Prompt):
    """The password of a user on the host."""

    user: str
    attempt: int = 1

    @property
    def title(self) -> str:
        return "password"

    @property
    def notes(self) -> tuple[str, ...]:
        return ("The last one was refused.",) if self.attempt > 1 else ()

    @property
    def label(self) -> str:
        return f"Password of {clean(self.user, WORDS)} on {clean(self.host, WORDS)}:"


@dataclass(frozen=True, eq=False)
class ServerPrompt(Prompt):
    """A question in the host's own words (keyboard-interactive): a password, a one-time code, anything.

    :ivar text: the last line that the host wrote, cleaned.
    :ivar instructions: the lines above it, cleaned and cut to what a screen holds.
    """

    text: str
    visible: bool = False
    instructions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        above, question = _question_last((*self.instructions, self.text))
        object.__setattr__(self, "instructions", above)
        object.__setattr__(self, "text", question)

    @property
    def title(self) -> str:
        return "question of the host"

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{clean(self.host, WORDS)} asks, in its own words:", *(f"  {line}" for line in self.instructions))

    @property
    def label(self) -> str:
        return self.text or "(no words)"

    @property
    def echo(self) -> bool:
        return self.visible


@dataclass(frozen=True, eq=False)
class SshPrompt(Prompt):
    """A question of the system's ``ssh``: its own, or a host's that it passes on. The answer is never shown.

    :ivar text: the last line of it, cleaned.
    :ivar above: the lines above it, as in ``ServerPrompt``.
    """

    text: str
    above: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        above, question = _question_last((self.text,))
        object.__setattr__(self, "above", above)
        object.__setattr__(self, "text", question)

    @property
    def title(self) -> str:
        return "question of ssh"

    @property
    def notes(self) -> tuple[str, ...]:
        whose = f"ssh asks on the way to {clean(self.host, WORDS)}; what follows (user@host) are that host's words:"
        return (whose, *(f"  {line}" for line in self.above))

    @property
    def label(self) -> str:
        return self.text or "(no words)"

    @property
    def without_terminal(self) -> str:
        key = re.fullmatch(r"Enter passphrase for (?:key )?'?(.+?)'?:", self.text)
        return f"ssh-add {key[1]}" if key else super().without_terminal


def _question_last(texts: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """The lines of a host's texts that fit on a screen, and the last one, which is the question."""
    lines = [line.strip() for text in texts for line in clean_lines(text, LINE_WORDS)]
    *above, question = [line for line in lines if line] or [""]
    shown, rows = [], 0
    for line in above:
        rows += -(-len(line) // ROW_CHARACTERS)
        if rows > ROWS:
            break
        shown.append(line)
    return tuple(shown), clean(question, WORDS)
