"""What the command line makes of a host: its exit code, its document, its words."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from link.sshd import SshServer

from eagle_console import cli


@dataclass(frozen=True)
class Answer:
    """One call of the command line. ``document`` is what ``--json`` printed."""

    code: int
    document: Any
    words: str

    @property
    def hello(self) -> dict[str, Any]:
        """What the agent said about itself."""
        assert self.code == 0, self.words
        hello: dict[str, Any] = self.document["agent"]
        return hello


def bundle_folder(server: SshServer, answer: Answer) -> Path:
    """Where the host keeps the agent that answered."""
    places = [server.cache, *(Path(f"{folder}/eagle_console-{os.getuid()}") for folder in ("/dev/shm", "/tmp"))]
    return next(place / answer.hello["bundle"] for place in places if (place / answer.hello["bundle"]).is_dir())


class Asker:
    """Runs ``eagle-console COMMAND HOST`` as a user would, in this process."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(
        self, server: SshServer | str, command: str = "status", *more: str, config: Path | None = None
    ) -> Answer:
        address = server if isinstance(server, str) else server.address
        self._captured.readouterr()
        code = cli.main([command, address, *more, "--json", "--timeout", "40"])
        out, err = self._captured.readouterr()
        assert "Traceback" not in out + err
        return Answer(code, json.loads(out) if out else None, err)

    def refused(self, server: SshServer | str, sentence: str) -> str:
        """Asks in vain: exit code 3 and the one sentence, of which ``sentence`` is a part. Gives the remedy."""
        answer = self(server)
        assert answer.code == 3, answer
        first, _, rest = answer.words.partition("\n")
        assert sentence in first, answer.words
        return rest.strip()
