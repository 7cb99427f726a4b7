"""What a command line says: whether it is a vLLM server, one of its processes, or a training run. Pure.

``/proc/PID/cmdline`` is all there is to go by: vLLM's engine and workers replace theirs by a title,
``VLLM::EngineCore`` or ``VLLM::Worker_TP0`` (0.10.1 and later), its API server and speculators keep the words they were
started with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

SERVER, PART, TRAINING, LAUNCHER = "server", "part", "training", "launcher"

SECRET = "<hidden>"
MAX_COMMAND_LINE = 4_000
"""Characters of a command line that are shown."""

DEFAULT_PORT = 8000

_PYTHON = re.compile(r"python[\d.]*$|pypy[\d.]*$")
_TITLE = re.compile(r"(?:\S+::)?VLLM::(?P<name>\S+)|^VLLM::(?P<plain>\S+)")
_SERVER_MODULES = re.compile(r"vllm\.entrypoints\.(?:openai\.)?(?:\w+\.)*(?:api_server|run_server)$")
_TRAINING_SCRIPT = re.compile(r"(?:[\w-]*[_-])?speculators?[\w-]{0,60}train\w{0,20}\.py$")
_MAX_PROGRAM = 200
_TRAINING_MODULES = ("speculators.train", "speculators.train.cli", "speculators.train.__main__")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_SECRET_OPTION = re.compile(r"(?i)(?:api[-_]?key|token|secret|password|passwd|credential|authorization)(?:s)?$")
_SECRET_WORD = re.compile(
    r"(?P<name>(?i:[\w-]{0,40}(?:api[-_]?key|token|secret|password|passwd)[\w-]{0,40}))(?P<equals>[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s,'\"}]+)"
)
_SECRET_VALUE = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,})")
_URL_PASSWORD = re.compile(r"(?P<scheme>\w{1,20}://[^/\s:@]{1,200}:)[^@\s/]{1,200}@")
_NOT_SECRET = re.compile(r"(?i)max|num|batch|len|freq|tokens|tokenizer|budget|path|parser|id$")


@dataclass(frozen=True)
class Recognised:
    """What a process is, by its command line.

    :param role: ``server``, ``part`` of one (engine, worker), ``training``, or ``launcher`` of training processes.
    :param title: vLLM's name for a part: ``EngineCore``, ``Worker_TP0``.
    :param port: that a server is to listen on; ``tls`` when it speaks TLS there, ``host`` the address.
    :param output: the folder that a training run writes to.
    """

    role: str
    title: str = ""
    model: Optional[str] = None
    port: Optional[int] = None
    host: Optional[str] = None
    tls: bool = False
    tensor_parallel: Optional[int] = None
    output: Optional[str] = None


def recognise(argv: Sequence[str]) -> Optional[Recognised]:
    """What the process with these words is; None for anything else."""
    if not argv:
        return None
    title = _TITLE.match(argv[0])
    if title:
        return Recognised(PART, title=title["name"] or title["plain"])
    words = list(argv)
    if _PYTHON.search(_base(words[0])):
        words = _after_interpreter(words)
    if not words:
        return None
    program, rest = words[0], words[1:]
    base = _base(program)
    if base == "vllm" and rest[:1] == ["serve"]:
        return _server(rest[1:], positional=True)
    if _is_module(program, _SERVER_MODULES) or program.endswith("vllm/entrypoints/openai/api_server.py"):
        return _server(rest, positional=False)
    if base == "speculators" and rest[:1] == ["train"]:
        return _training(rest[1:])
    if program.startswith("-m ") and program[3:] in _TRAINING_MODULES:
        return _training(rest)
    if _TRAINING_SCRIPT.match(base[:_MAX_PROGRAM]) or program.endswith("speculators/train.py"):
        return _training(rest)
    if base in ("torchrun", "accelerate") or (program.startswith("-m ") and program[3:] in _LAUNCHER_MODULES):
        return _launcher(rest)
    return None


def is_part(argv: Sequence[str]) -> bool:
    """Whether a process is an engine or a worker of vLLM."""
    return bool(argv) and _TITLE.match(argv[0]) is not None


def redact(argv: Sequence[str]) -> str:
    """The command line for people: words with spaces quoted, the values of secret options and tokens hidden."""
    words: list[str] = []
    hide, room = False, MAX_COMMAND_LINE
    for word in (word[:MAX_COMMAND_LINE] for word in argv):
        if room < 0:
            break
        room -= len(word) + 1
        name, equals, _ = word.partition("=")
        if hide and not word.startswith("--"):
            words.append(SECRET)  # an option such as --api-key takes several values
            continue
        hide = False
        if word.startswith("-") and _is_secret_option(name):
            words.append(f"{name}={SECRET}" if equals else word)
            hide = not equals
        else:
            words.append(_quoted(without_secrets(word)))
    line = " ".join(words)
    return line if len(line) <= MAX_COMMAND_LINE else line[: MAX_COMMAND_LINE - 1] + "…"


def safe_name(text: Optional[str], otherwise: str) -> str:
    """The last part of a path or model id as a name that can be typed."""
    base = (text or "").rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", base).strip("-")[:60]
    return name or otherwise


def _server(words: Sequence[str], positional: bool) -> Recognised:
    options = _options(words)
    first = words[0] if positional and words and not words[0].startswith("-") else None
    port = options.get("port")
    return Recognised(
        SERVER,
        model=first or options.get("model") or options.get("model-tag"),
        port=int(port) if port and port.isdigit() else DEFAULT_PORT,
        host=options.get("host"),
        tls="ssl-certfile" in options,
        tensor_parallel=_count(options.get("tensor-parallel-size") or options.get("tp")),
    )


def _training(words: Sequence[str]) -> Recognised:
    options = _options(words)
    return Recognised(
        TRAINING, model=options.get("verifier-name-or-path") or options.get("verifier"), output=options.get("save-path")
    )


def _launcher(words: Sequence[str]) -> Optional[Recognised]:
    """A launcher counts when what it launches is a training run that we know."""
    for place, word in enumerate(words):
        program = f"-m {words[place + 1]}" if word in ("-m", "--module") and place + 1 < len(words) else word
        rest = words[place + (2 if program != word else 1) :]
        found = recognise([program, *rest]) if program != word or not word.startswith("-") else None
        if found is not None and found.role == TRAINING:
            return Recognised(LAUNCHER, model=found.model, output=found.output)
    return None


def _after_interpreter(words: Sequence[str]) -> list[str]:
    """The program that Python runs with its arguments; a module stands there as ``-m NAME``."""
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m" and place + 1 < len(words):
            return [f"-m {words[place + 1]}", *words[place + 2 :]]
        if word in ("-c", "-"):
            return []
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            place += 2
        elif word.startswith("-"):
            place += 1
        else:
            return list(words[place:])
    return []


def _options(words: Sequence[str]) -> dict[str, str]:
    """The values of options by their name with dashes; ``--a b``, ``--a=b`` and ``-tp 8`` alike."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""]):
        if not word.startswith("-") or len(word) < 2 or word[1:2].isdigit():
            continue
        name, equals, value = word.lstrip("-").partition("=")
        found[name.replace("_", "-")] = value if equals else following
    return found


def _count(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() else None


def _is_module(program: str, pattern: re.Pattern[str]) -> bool:
    return program.startswith("-m ") and pattern.match(program[3:]) is not None


def _base(path: str) -> str:
    return os.path.basename(path)


def _is_secret_option(name: str) -> bool:
    return _SECRET_OPTION.search(name) is not None and _NOT_SECRET.search(name.rpartition("token")[0]) is None


def without_secrets(word: str) -> str:
    """A text with the values of tokens, passwords in addresses, and ``token=`` pairs hidden."""
    word = _SECRET_VALUE.sub(SECRET, word)
    word = _URL_PASSWORD.sub(rf"\g<scheme>{SECRET}@", word)
    return _SECRET_WORD.sub(_hide_value, word) if "=" in word or ":" in word else word


def _hide_value(match: re.Match[str]) -> str:
    if _NOT_SECRET.search(match["name"]):
        return match[0]
    return f"{match['name']}{match['equals']}{SECRET}"


def _quoted(word: str) -> str:
    if word and not re.search(r"[\s'\"\\$`;&|<>()*?#~]", word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"
