"""What a run says about itself: the settings in ``run.yaml`` and the command in ``train_command.txt``.

There is no YAML reader in the standard library, and none is needed: speculators writes ``run.yaml`` with
``yaml.safe_dump``, whose scalars stand on one line each, as ``key: value`` or ``- value``. What is written otherwise is
passed over.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from remote.disk.completeness import read_text

RUN_FILE, COMMAND_FILE = "run.yaml", "train_command.txt"

_SCALAR = re.compile(r"^\s*(?:-\s+)?(?:(?P<key>[A-Za-z_][\w-]*):(?:\s+|$))?(?P<value>.*?)\s*$")


@dataclass(frozen=True)
class Setting:
    """A named value: ``name`` as the file has it, with underscores; ``source`` is the file's path."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Settings:
    """All settings that a run's files name, those of ``run.yaml`` first."""

    items: tuple[Setting, ...] = ()

    def get(self, name: str) -> Optional[str]:
        """The first value of that name."""
        return next((item.value for item in self.items if item.name == name), None)

    def whole(self, name: str) -> Optional[int]:
        """The value as a whole number."""
        value = self.get(name)
        return int(value) if value is not None and value.isdecimal() else None


def read(folder: str) -> Settings:
    """The settings of a run directory; none where it has no such files."""
    run_file, command_file = os.path.join(folder, RUN_FILE), os.path.join(folder, COMMAND_FILE)
    return Settings((*from_yaml(read_text(run_file), run_file), *from_command(read_text(command_file), command_file)))


def from_yaml(text: str, source: str) -> Iterable[Setting]:
    """The scalars of a file that ``yaml.safe_dump`` wrote; an item of a list has the list's key."""
    key = ""
    for line in text.splitlines():
        match = None if line.lstrip().startswith("#") else _SCALAR.match(line)
        if match is None:
            continue
        key = match["key"] or key
        value = _unquoted(match["value"])
        if value and value not in ("null", "~", "[]", "{}"):
            yield Setting(key, value, source)


def from_command(text: str, source: str) -> Iterable[Setting]:
    """The options of a command line; words without one are given the name ``argument``."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    try:
        words = shlex.split(" ".join(lines))
    except ValueError:
        return
    yield from from_words(words, source)


def from_words(words: Iterable[str], source: str) -> Iterable[Setting]:
    """The options among words: ``--data-path X`` and ``--data-path=X`` name ``data_path``; ``run=1k`` names ``run``."""
    name = ""
    for word in words:
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            name = option.replace("-", "_")
            if equals:
                yield Setting(name, value, source)
                name = ""
        else:
            yield Setting(name or "argument", word, source)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1].replace("''", "'") if value[0] == "'" else value[1:-1]
    return value
