"""The operations of the survey on the wire: ``triage`` and ``checkpoints``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from remote import arguments
from remote.disk.operations import Operation
from remote.protocol.artifacts import CheckpointList, Triage

if TYPE_CHECKING:
    from remote.disk.survey import Survey

CHANGING = ("prune", "undo", "purge", "pin")
"""Operations after which the disk is another than it was."""


def survey_operations(survey: Callable[[], Survey]) -> dict[str, Operation]:
    """The operations by their names.

    :param survey: gives the survey, made at its first use.
    """

    def triage(args: Mapping[str, Any], key: Optional[str]) -> Triage:
        return survey().triage(arguments.texts(args, "dirs"), args.get("fresh") is True)

    def checkpoints(args: Mapping[str, Any], key: Optional[str]) -> CheckpointList:
        return survey().checkpoints(arguments.text(args, "dir"))

    return {"triage": triage, "checkpoints": checkpoints}


def then_forget(operations: Mapping[str, Operation], survey: Callable[[], Survey]) -> dict[str, Operation]:
    """The operations, of which those that change the disk make the survey read it again."""

    def forgetting(operation: Operation) -> Operation:
        def run(args: Mapping[str, Any], key: Optional[str]) -> Any:
            try:
                return operation(args, key)
            finally:
                survey().forget()

        return run

    return {name: forgetting(one) if name in CHANGING else one for name, one in operations.items()}
