"""What this connection may do on this host: read-only mode and the allowed roots.

The administrator's word is ``agent.toml`` on the host, a flat file of ``readonly = true|false`` and
``roots = ["/data", ...]``. The console's hello can narrow it and never widen it. Python 3.9 has no TOML reader and two
keys need none: each line is ``key = JSON value``, which is TOML for these values. A file that cannot be read as that is
not guessed at: the connection is then read-only, with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from remote.protocol.errors import REFUSED, RequestError

POLICY_FILES = ("/etc/eagle_console/agent.toml", "~/.config/eagle_console/agent.toml")
"""The first that exists counts: a user cannot widen what the system's file says."""

_MAX_FILE_BYTES = 64 * 1024


class PolicyError(ValueError):
    """An ``agent.toml`` that does not say what it should. The message names the line."""


@dataclass(frozen=True)
class Policy:
    """What may be done.

    :param readonly: nothing on the host may be changed.
    :param readonly_reason: why, as a clause that follows "read-only: "; empty when it is not.
    :param roots: folders that the workspace must lie in; without an ``agent.toml`` the workspace itself.
    :param workspace: the folder that holds the artifact directories and the jobs; None where the profile names none.
    :param confined: an ``agent.toml`` names the roots, or cannot be read: nothing outside them is read for a console.
        Without one a console may read what its user may.
    """

    readonly: bool
    readonly_reason: str
    roots: tuple[str, ...]
    workspace: Optional[str]
    confined: bool = False

    def require_writable(self) -> None:
        """Nothing where changes are allowed.

        :raises RequestError: ``refused``, with the reason, where they are not.
        """
        if self.readonly:
            raise RequestError(
                REFUSED, f"nothing can be changed over this connection; it is read-only: {self.readonly_reason}"
            )

    def require_readable(self, path: str) -> None:
        """Nothing where files of this path may be given to a console.

        :raises RequestError: ``refused`` where the host's ``agent.toml`` confines it to other folders.
        """
        if self.confined and not inside(path, self.roots):
            roots = ", ".join(self.roots) or "none"
            raise RequestError(REFUSED, f"{path} lies outside the roots of this host's agent.toml ({roots})")


def load(workspace: Optional[str], readonly: bool, files: Sequence[str] = POLICY_FILES) -> Policy:
    """The policy of this host, narrowed by what the console asked for in its hello. Never raises.

    :param workspace: the profile's workspace.
    :param readonly: the console asks for a read-only connection.
    """
    path = next((name for name in map(os.path.expanduser, files) if os.path.lexists(name)), None)
    try:
        settings = parse(_read(path)) if path else {}
    except (OSError, ValueError) as error:
        return Policy(True, f"{path} cannot be used: {error}", (), workspace, confined=True)
    roots = tuple(settings.get("roots", (workspace,) if workspace else ()))
    reason = _readonly_reason(workspace, readonly, settings, path)
    return Policy(bool(reason), reason, roots, workspace, confined="roots" in settings)


def parse(text: str) -> dict[str, Any]:
    """The settings of an ``agent.toml``.

    :raises PolicyError: for anything but the two known keys with values of their types.
    """
    settings: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, rest = line.partition("=")
        key = key.strip()
        if not equals:
            raise PolicyError(f"line {number} is not of the form key = value")
        if key not in _CHECKS:
            raise PolicyError(f"line {number}: unknown key {key!r}; there are: {', '.join(sorted(_CHECKS))}")
        if key in settings:
            raise PolicyError(f"line {number}: {key} is given twice")
        settings[key] = _CHECKS[key](_value(rest, number), number)
    return settings


def inside(path: str, roots: Sequence[str]) -> bool:
    """Whether a path, with its symbolic links resolved, is one of the folders or lies below one."""
    real = Path(os.path.realpath(path))
    return any(root == real or root in real.parents for root in (Path(os.path.realpath(root)) for root in roots))


def _readonly_reason(workspace: Optional[str], asked: bool, settings: dict[str, Any], path: Optional[str]) -> str:
    if settings.get("readonly"):
        return f"{path} says so"
    if asked:
        return "the console asked for it"
    if workspace is not None and not os.path.isabs(workspace):
        return f"the workspace {workspace} is not an absolute path"
    if workspace is not None and "roots" in settings and not inside(workspace, settings["roots"]):
        return f"the workspace {workspace} lies outside the roots of {path} ({', '.join(settings['roots']) or 'none'})"
    return ""


def _value(text: str, number: int) -> Any:
    stripped = text.strip()
    try:
        value, end = json.JSONDecoder().raw_decode(stripped)
    except (ValueError, RecursionError):
        raise PolicyError(f"line {number}: the value is neither true, false nor a list of quoted paths") from None
    rest = stripped[end:].strip()
    if rest and not rest.startswith("#"):
        raise PolicyError(f"line {number}: something follows the value")
    return value


def _readonly_value(value: Any, number: int) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(f"line {number}: readonly is true or false")
    return value


def _roots_value(value: Any, number: int) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(root, str) and os.path.isabs(root) for root in value):
        raise PolicyError(f"line {number}: roots is a list of absolute paths")
    return tuple(value)


_CHECKS = {"readonly": _readonly_value, "roots": _roots_value}


def _read(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise PolicyError(f"it is longer than {_MAX_FILE_BYTES} bytes")
    return data.decode("utf-8")
