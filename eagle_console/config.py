"""Host profiles and where the console keeps its files.

The configuration is one TOML file of the user's; nothing is ever read from the working directory, since a repository
found there could then name hosts and commands. Unknown keys are errors: a typo in ``workspace`` must not widen what may
be deleted.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

from eagle_console.screen_settings import BELL, NOTIFY, ScreenSettings
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.stages import StageContext

COMMANDS = (
    "demo", "hosts", "doctor", "watch", "status", "gpus", "disk", "stages", "run", "jobs", "logs", "stop", "shell",
    "forward", "get", "checkpoints", "triage", "prune", "undo", "purge", "trash", "pin", "validate", "explain-log",
    "compare", "journal", "report", "replay", "completion",
)  # fmt: skip
"""Every command of the contract, present or planned: a profile of such a name could never be opened."""

ASYNCSSH = "asyncssh"
SYSTEM_SSH = "ssh"
TRANSPORTS = (ASYNCSSH, SYSTEM_SSH)
"""How a host is reached: by the console's own SSH, or by the system's ``ssh`` with everything that it is set up for."""

PRUNE_LEVELS = (LEVEL_WHOLE, LEVEL_TRIM)
"""What the recommended policy takes of a checkpoint: all of it, or what only a resume needs."""

ENGINES = ("local",)
_ENGINES_PLANNED = ("slurm",)


class ConfigError(Exception):
    """The configuration is wrong; the message names the file, the key and what was expected."""


@dataclass(frozen=True)
class HostProfile:
    """One ``[hosts.NAME]`` table. ``address`` is an ssh alias, ``user@host:port`` or ``local``."""

    name: str
    address: str
    workspace: str | None = None
    verifier: str | None = None
    python: str | None = None
    tensor_parallel: int | None = None
    engine: str = "local"
    readonly: bool = False
    transport: str = ASYNCSSH
    prune: str = LEVEL_WHOLE

    @property
    def context(self) -> StageContext:
        return StageContext(verifier=self.verifier, python=self.python, tensor_parallel=self.tensor_parallel)


@dataclass(frozen=True)
class Config:
    """The whole configuration and where it came from (None: there is no file)."""

    hosts: dict[str, HostProfile] = field(default_factory=dict)
    screen: ScreenSettings = field(default_factory=ScreenSettings)
    source: Path | None = None


_TYPES: dict[str, type] = {
    "address": str,
    "workspace": str,
    "verifier": str,
    "python": str,
    "tensor_parallel": int,
    "engine": str,
    "readonly": bool,
    "transport": str,
    "prune": str,
}
_SCREEN_TYPES: dict[str, type] = {"theme": str, "ascii": bool, "notify": str, "keys": dict}
_ABSOLUTE = ("workspace", "verifier", "python")


def config_dir() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config") / "eagle-console"


def state_dir() -> Path:
    """For what must last on the user's machine: trusted host keys, the last host, crash reports."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "eagle-console"


def default_path() -> Path:
    return config_dir() / "config.toml"


def load(path: Path | None = None) -> Config:
    """The configuration from ``path``, or from the default place where it may be absent.

    :raises ConfigError: when a file that was named is missing, or anything in it is wrong.
    """
    source = path or default_path()
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(f"{source}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read: {error}") from None
    return parse(text, source)


def parse(text: str, source: Path | None = None) -> Config:
    """The configuration in a TOML text.

    :raises ConfigError: as ``load``.
    """
    where = str(source or "configuration")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    _refuse_unknown(data, ["hosts", "screen"], where)
    hosts = data.get("hosts", {})
    if not isinstance(hosts, dict):
        raise ConfigError(f"{where}: hosts must be tables like [hosts.gpu-box]")
    profiles = {name: _profile(name, table, where) for name, table in hosts.items()}
    return Config(profiles, _screen(data.get("screen", {}), f"{where}: [screen]"), source)


def _screen(table: Any, where: str) -> ScreenSettings:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table")
    _refuse_unknown(table, list(_SCREEN_TYPES), where)
    _check_types(table, _SCREEN_TYPES, where)
    if table.get("notify", BELL) not in NOTIFY:
        raise ConfigError(f"{where}: notify must be one of {', '.join(NOTIFY)}, not {table['notify']!r}")
    for action, keys in table.get("keys", {}).items():
        if not isinstance(keys, str):
            raise ConfigError(f'{where}: keys: {action} must be a text such as "X" or "x, ctrl+x"')
    return ScreenSettings(**table)


def _profile(name: str, table: Any, where: str) -> HostProfile:
    where = f"{where}: [hosts.{name}]"
    if name in COMMANDS:
        raise ConfigError(f"{where}: {name!r} is a command of eagle-console; give the profile another name")
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table")
    _refuse_unknown(table, list(_TYPES), where)
    _check_types(table, _TYPES, where)
    for key, value in table.items():
        if key in _ABSOLUTE and not str(value).startswith("/"):
            raise ConfigError(f"{where}: {key} must be an absolute path on the host, not {value!r}")
    if not table.get("address"):
        raise ConfigError(f"{where}: address is missing (an ssh alias, user@host:port, or local)")
    if table.get("tensor_parallel", 1) < 1:
        raise ConfigError(f"{where}: tensor_parallel must be at least 1")
    engine = table.get("engine", "local")
    if engine in _ENGINES_PLANNED:
        raise ConfigError(f"{where}: engine {engine!r} is not in this version yet; use 'local'")
    if engine not in ENGINES:
        raise ConfigError(f"{where}: engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    transport = table.get("transport", ASYNCSSH)
    if transport not in TRANSPORTS:
        raise ConfigError(f"{where}: transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}")
    prune = table.get("prune", LEVEL_WHOLE)
    if prune not in PRUNE_LEVELS:
        raise ConfigError(f"{where}: prune must be one of {', '.join(PRUNE_LEVELS)}, not {prune!r}")
    return HostProfile(name=name, **table)


def _check_types(table: dict[str, Any], types: dict[str, type], where: str) -> None:
    for key, value in table.items():
        kind = types[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConfigError(f"{where}: {key} must be of type {kind.__name__}, not {type(value).__name__}")


def _refuse_unknown(table: dict[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback
