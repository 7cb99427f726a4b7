"""The operations ``validate`` and ``fix_draft``: a console's request under this host's policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable, Optional

from remote import arguments
from remote.drafts.fixing import fix_draft
from remote.drafts.validating import validate
from remote.journal import Journal
from remote.policy import Policy, inside
from remote.protocol.errors import BAD_ARGUMENT, REFUSED, RequestError
from remote.protocol.validation import DraftFix, DraftValidation

Operation = Callable[[Mapping[str, Any], Optional[str]], Any]


class Drafts:
    """Both operations. All methods may block and be called from any thread.

    :param policy: says what may be read, and where a copy may be written.
    :param journal: the workspace's; a copy is announced there before it is written.
    """

    def __init__(self, policy: Policy, journal: Callable[[], Journal]) -> None:
        self._policy = policy
        self._journal = journal
        self.operations: dict[str, Operation] = {
            "validate": lambda args, key: self.validate(args),
            "fix_draft": lambda args, key: self.fix(args),
        }

    def validate(self, args: Mapping[str, Any]) -> DraftValidation:
        """Of the draft in ``dir``, beside ``verifier`` where it is given; ``layer_ids`` says how its ids count.

        :raises RequestError: as ``remote.drafts.validating.validate``, and ``refused`` outside the roots.
        """
        path, verifier, convention = self._folders(args)
        return validate(path, verifier, convention, self._policy.require_readable)

    def fix(self, args: Mapping[str, Any]) -> DraftFix:
        """A corrected copy of the draft in ``dir`` at ``target``, beside it where that is absent.

        :raises RequestError: as ``remote.drafts.fixing.fix_draft``, and ``refused`` where nothing may be written.
        """
        self._policy.require_writable()
        path, verifier, convention = self._folders(args)
        target = self._absolute(arguments.text(args, "target")) if args.get("target") is not None else None
        place = os.path.dirname(target or path)
        if not inside(place, self._policy.roots):
            roots = ", ".join(self._policy.roots) or "none"
            raise RequestError(REFUSED, f"{place} lies outside the roots of this host ({roots})")
        asked_by = arguments.optional_text(args, "requested_by")

        def announce(draft: str, copy: str, changes: tuple[str, ...]) -> None:
            if self._policy.workspace:
                text = f"writes a corrected copy of {draft}: {'; '.join(changes)}"
                self._journal().append("fix draft", text[:2000], requested_by=asked_by, paths=(copy,))

        return fix_draft(path, target, verifier, convention, self._policy.require_readable, announce)

    def _folders(self, args: Mapping[str, Any]) -> tuple[str, Optional[str], Optional[str]]:
        path = self._absolute(arguments.text(args, "dir"))
        verifier = self._absolute(arguments.text(args, "verifier")) if args.get("verifier") is not None else None
        convention = arguments.text(args, "layer_ids") if args.get("layer_ids") is not None else None
        for folder in (path, verifier):
            if folder is not None:
                self._policy.require_readable(folder)
        return path, verifier, convention

    def _absolute(self, path: str) -> str:
        if "\0" in path:
            raise RequestError(BAD_ARGUMENT, "a path holds no zero byte")
        expanded = os.path.expanduser(path) if path.startswith("~") else path
        if os.path.isabs(expanded):
            return os.path.normpath(expanded)
        if not self._policy.workspace:
            raise RequestError(BAD_ARGUMENT, f"{path!r} is not absolute, and the profile names no workspace")
        return os.path.normpath(os.path.join(self._policy.workspace, expanded))
