"""The operations of deletion on the wire: their arguments, and which method of ``Deletion`` answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from remote import arguments
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE
from remote.protocol.errors import BAD_ARGUMENT, RequestError
from remote.protocol.trash import Journal, Pin, Plan, Receipt, TrashList

if TYPE_CHECKING:
    from remote.disk.deletion import Deletion

RECOMMENDED = "recommended"
"""The one policy that ``plan_prune`` knows."""

Operation = Callable[[Mapping[str, Any], Optional[str]], Any]


def deletion_operations(deletion: Callable[[], Deletion]) -> dict[str, Operation]:
    """The operations by their names.

    :param deletion: gives the engine, made at its first use.
    """

    def plan_prune(args: Mapping[str, Any], key: Optional[str]) -> Plan:
        level = args.get("level", LEVEL_WHOLE)
        if level not in (LEVEL_TRIM, LEVEL_WHOLE):
            raise RequestError(BAD_ARGUMENT, f"level is {LEVEL_TRIM} or {LEVEL_WHOLE}")
        policy = args.get("policy")
        if policy is None:
            return deletion().plan(arguments.texts(args, "paths"), level, arguments.texts(args, "force"))
        if policy != RECOMMENDED:
            raise RequestError(BAD_ARGUMENT, f"the only policy is {RECOMMENDED}")
        return deletion().plan_recommended(arguments.text(args, "dir"), level)

    def prune(args: Mapping[str, Any], key: Optional[str]) -> Receipt:
        return deletion().prune(
            arguments.text(args, "plan"),
            arguments.text(args, "fingerprint"),
            arguments.optional_text(args, "typed"),
            arguments.optional_text(args, "requested_by"),
            key,
        )

    def undo(args: Mapping[str, Any], key: Optional[str]) -> Receipt:
        return deletion().undo(arguments.text(args, "receipt"), arguments.optional_text(args, "requested_by"))

    def purge(args: Mapping[str, Any], key: Optional[str]) -> TrashList:
        who = arguments.optional_text(args, "requested_by")
        if args.get("expired") is True:
            return deletion().purge_expired(who)
        return deletion().purge(arguments.text(args, "receipt"), who)

    def trash(args: Mapping[str, Any], key: Optional[str]) -> TrashList:
        return deletion().trash()

    def pin(args: Mapping[str, Any], key: Optional[str]) -> Pin:
        pinned = args.get("pinned", True)
        if not isinstance(pinned, bool):
            raise RequestError(BAD_ARGUMENT, "pinned is true or false")
        return deletion().pin(arguments.text(args, "path"), pinned, arguments.optional_text(args, "requested_by"))

    def journal(args: Mapping[str, Any], key: Optional[str]) -> Journal:
        return deletion().journal(arguments.number(args, "after"), arguments.number(args, "limit"))

    return {
        "plan_prune": plan_prune,
        "prune": prune,
        "undo": undo,
        "purge": purge,
        "trash": trash,
        "pin": pin,
        "journal": journal,
    }
