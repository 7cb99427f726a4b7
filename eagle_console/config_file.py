"""Adding a profile to the configuration file: appended, with everything that is there left as it is.

The new text is parsed before it takes the old one's place, and takes it in one step.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from eagle_console.config import Config, ConfigError, HostProfile, parse

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f\-][^\s\x00-\x1f\x7f]*")


def profile_text(name: str, values: dict[str, str | int | bool]) -> str:
    """The TOML table of a profile.

    :raises ConfigError: for a name or a value that cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a profile: no spaces, and no dash in front")
    key = name if _BARE.fullmatch(name) else _string(name)
    lines = [f"{option} = {_value(value)}" for option, value in values.items()]
    return "\n".join([f"[hosts.{key}]", *lines, ""])


def read_profile(name: str, values: dict[str, str | int | bool]) -> HostProfile:
    """The profile as it will be read from the file.

    :raises ConfigError: for everything that the configuration would refuse.
    """
    return parse(profile_text(name, values)).hosts[name]


def append_profile(path: Path, name: str, values: dict[str, str | int | bool]) -> Config:
    """Adds a profile at the end of a configuration file, which is made if it is not there.

    :returns: the configuration as it is now.
    :raises ConfigError: when the name is taken, the file is not valid, or it cannot be written.
    """
    place = path.resolve()  # a linked file stays linked
    try:
        old = place.read_bytes().decode("utf-8") if place.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    before = parse(old, path)
    if name in before.hosts:
        raise ConfigError(f"{path}: there is a profile {name!r} already; change it there")
    gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
    new = f"{old}{gap}{profile_text(name, values)}"
    after = parse(new, path)
    if {other: after.hosts.get(other) for other in before.hosts} != before.hosts or name not in after.hosts:
        raise ConfigError(f"{path}: a profile cannot be added at its end; write it by hand")
    try:
        _replace(place, new)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return after


def _replace(path: Path, text: str) -> None:
    """Writes the file in one step, with the mode that it had; a new one is for the user alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _string(value)


def _string(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's too; what is not printable is refused."""
    if not text.isprintable():
        raise ConfigError(f"{text!r} has characters that cannot be written to the configuration")
    return json.dumps(text, ensure_ascii=False)
