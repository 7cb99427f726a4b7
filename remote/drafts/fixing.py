"""A corrected copy of a draft's folder: written beside it under another name, shared weights, whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from typing import Any, Optional

from pipeline.plan.draft_rules.fixing import default_target, fix
from remote.drafts.validating import Allowed, facts, validate
from remote.protocol.errors import CONFLICT, FAILED, REFUSED, RequestError
from remote.protocol.validation import DraftFix

CONFIG = "config.json"

_COPIED = (".json", ".txt", ".md", ".py", ".jinja", ".model")
"""Endings of the small files that go along; a trainer's optimizer state does not."""

_TRAINING = ("training_state.json", "val_metrics.json", "train_command.txt")
_SMALL_BYTES = 64 * 1024 * 1024
_FICLONE = 0x40049409
"""ioctl_ficlone(2): the copy shares the data until one of the two is written."""


Announce = Callable[[str, str, tuple[str, ...]], None]
"""Called with the draft, the copy and the changes before anything is written; raises where that must not be."""


def fix_draft(
    path: str,
    target: Optional[str],
    verifier: Optional[str],
    convention: Optional[str],
    allowed: Allowed = None,
    announce: Optional[Announce] = None,
) -> DraftFix:
    """Writes a copy of the draft without the defects that need no guess, and validates it.

    :param target: the copy's absolute path; beside the draft where it is None. It must not be there.
    :raises RequestError: ``conflict`` where something is at the target, ``refused`` where nothing can be fixed or the
        target lies in the draft itself, ``failed`` where it cannot be written; nothing is left then.
    """
    draft, their_config, _ = facts(path, verifier, convention, allowed)
    goal = os.path.abspath(target) if target else default_target(draft.path)
    if os.path.lexists(goal):
        raise RequestError(CONFLICT, f"{goal} is there already", "Name another place, or take it away.")
    if os.path.realpath(goal).startswith(os.path.realpath(draft.path) + os.sep):
        raise RequestError(REFUSED, f"{goal} lies in the draft itself")
    correction = fix(draft, their_config, convention, goal)
    if not correction.changes:
        raise RequestError(REFUSED, "none of the findings can be fixed without a guess", "Read their remedies.")
    if announce is not None:
        announce(draft.path, goal, correction.changes)
    partial = f"{os.path.dirname(goal)}/.{os.path.basename(goal)}.partial.{os.getpid()}"
    try:
        os.mkdir(partial, 0o755)
        copied = _fill(draft.path, partial, correction.config, allowed)
        os.rename(partial, goal)
        _sync(os.path.dirname(goal))
    except OSError as error:
        raise RequestError(FAILED, f"{error.filename or goal}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return DraftFix(draft.path, goal, correction.changes, copied, validate(goal, verifier, None, allowed))


def _fill(source: str, target: str, config: dict[str, Any], allowed: Allowed) -> int:
    copied = 0
    for name in sorted(os.listdir(source)):
        path = os.path.realpath(os.path.join(source, name))
        if not os.path.isfile(path) or name == CONFIG or name in _TRAINING:
            continue
        if allowed is not None:
            allowed(path)
        weights = name.endswith(".safetensors")
        if weights or (name.endswith(_COPIED) and os.path.getsize(path) <= _SMALL_BYTES):
            copied += _place(path, os.path.join(target, name), weights)
    with open(os.path.join(target, CONFIG), "x", encoding="utf-8") as file:
        file.write(json.dumps(config, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(target)
    return copied


def _place(source: str, target: str, shared: bool) -> int:
    """The bytes that were copied: none where the file system lets two files share them."""
    with open(source, "rb") as original, open(target, "xb") as copy, contextlib.suppress(OSError):
        fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
        os.fsync(copy.fileno())
        return 0
    if shared:
        # One file under two names: safetensors files are replaced, never written in place.
        with contextlib.suppress(OSError):
            os.unlink(target)
            os.link(source, target)
            return 0
    shutil.copyfile(source, target)
    _sync(target)
    return os.path.getsize(target)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
