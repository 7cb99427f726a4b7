"""The keys of a person's own: the configuration's table ``[screen.keys]`` over the action table."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from eagle_console.config import ConfigError
from eagle_console.tui.actions import ACTIONS, SCREENS, SIGNS, Action, actions_at

FORBIDDEN = frozenset({"ctrl+h", "ctrl+i", "ctrl+j", "ctrl+m", "ctrl+left_square_bracket", "ctrl+c"})
"""Keys that terminals cannot tell from others, or that end programs."""

_KEY = re.compile(r"(?:ctrl\+|alt\+|shift\+)*(?:[A-Za-z0-9]|[a-z][a-z0-9_]+)")
_NAMES = {sign: name for name, sign in SIGNS.items()}


@dataclass(frozen=True)
class Keymap:
    """Textual's names of the keys by action; an action that is not here has those of the table."""

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, action: Action) -> tuple[str, ...]:
        """The keys of an action; the first is the one that is shown."""
        return self.own.get(action.id, action.keys)

    def key(self, action: Action) -> str:
        """The first key as people write it."""
        return _sign(self.keys(action)[0])

    def all_keys(self, action: Action) -> str:
        return " ".join(_sign(key) for key in self.keys(action))

    def textual(self) -> dict[str, str]:
        """Textual's keymap: keys by the ids of the bindings."""
        return {
            f"{place}.{action.id}": ",".join(self.own[action.id])
            for action in ACTIONS
            if action.id in self.own
            for place in action.where
        }


DEFAULT = Keymap()
"""The keys of the table."""


def parse(table: Mapping[str, str]) -> Keymap:
    """The keymap that a configuration writes.

    :raises ConfigError: for an action that is not there, a key that terminals do not have, or one that two actions of
        one screen would share.
    """
    ids = [action.id for action in ACTIONS]
    own = {}
    for name, written in table.items():
        if name not in ids:
            nearest = difflib.get_close_matches(name, ids, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are: {', '.join(ids)}"
            raise ConfigError(f"[screen.keys]: there is no action {name!r}; {hint}")
        own[name] = tuple(_named(name, word) for word in _words(written))
        if not own[name]:
            raise ConfigError(f"[screen.keys]: {name} has no key")
    keymap = Keymap(own)
    for screen in SCREENS:
        _check(keymap, screen)
    return keymap


def _check(keymap: Keymap, screen: str) -> None:
    taken: dict[str, str] = {}
    for action in actions_at(screen):
        for key in keymap.keys(action):
            other = taken.setdefault(key, action.id)
            if other != action.id and (action.id in keymap.own or other in keymap.own):
                raise ConfigError(f"[screen.keys]: {_sign(key)} is the key of {other} and of {action.id} on {screen}")


def _words(written: str) -> list[str]:
    """``"x, ctrl+x"`` as its keys; a lone comma is a key itself."""
    return [","] if written.strip() == "," else [word.strip() for word in written.split(",") if word.strip()]


def _named(name: str, word: str) -> str:
    key = _NAMES.get(word, word)
    if key in FORBIDDEN or not (key in SIGNS or _KEY.fullmatch(key)):
        raise ConfigError(f"[screen.keys]: {name} = {word!r} is no key that a terminal can send on its own")
    return key


def _sign(key: str) -> str:
    return SIGNS.get(key, key)
