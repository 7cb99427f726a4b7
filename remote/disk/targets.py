"""What may be named for deletion at all: paths below the workspace, no two of them nested. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from remote.disk.manifest import FOREIGN_NAMES
from remote.protocol.errors import BAD_ARGUMENT, REFUSED, RequestError

MAX_TARGETS = 300
"""Of one plan: its items must fit into a frame, and its intent into a line of the journal."""


def relative(path: str, workspaces: Sequence[str]) -> str:
    """The path below the workspace of what a person named, without a look at the disk.

    :param path: absolute, or below the workspace.
    :param workspaces: the names of the workspace: as the profile gives it, and with its symbolic links resolved.
    :raises RequestError: ``refused`` for anything that is not strictly below the workspace, or is our own.
    """
    if not path or "\0" in path:
        raise RequestError(BAD_ARGUMENT, "a path must be a text without NUL")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise RequestError(REFUSED, f"{path} is not deleted: a path with .. can mean anything")
    if os.path.isabs(path):
        names = _below(path, names, workspaces)
    if not names:
        raise RequestError(REFUSED, f"{path} is not deleted: it is the workspace itself or a folder above it")
    for name in names:
        if name in FOREIGN_NAMES:
            raise RequestError(REFUSED, f"{path} is not deleted: {name} is where this program keeps what it needs")
    return "/".join(names)


def without_nested(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The paths without those that lie in others, in their order, and those that do with the one that holds them.

    :param paths: as ``relative`` gives them; one that is named twice counts once.
    """
    chosen = dict.fromkeys(paths)
    kept, nested = [], []
    for path in chosen:
        names = path.split("/")
        above = next((head for head in ("/".join(names[:end]) for end in range(1, len(names))) if head in chosen), None)
        if above is None:
            kept.append(path)
        else:
            nested.append((path, above))
    return tuple(kept), tuple(nested)


def _below(path: str, names: list[str], workspaces: Sequence[str]) -> list[str]:
    for workspace in workspaces:
        root = [name for name in workspace.split("/") if name not in ("", ".")]
        if names[: len(root)] == root:
            return names[len(root) :]
        if root[: len(names)] == names:
            raise RequestError(REFUSED, f"{path} is not deleted: it is a folder above the workspace {workspace}")
    raise RequestError(REFUSED, f"{path} is not deleted: it lies outside the workspace {workspaces[0]}")
