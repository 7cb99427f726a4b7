"""The operations of freeing GPUs on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from remote import arguments
from remote.disk.operations import Operation
from remote.protocol.errors import BAD_ARGUMENT, RequestError
from remote.protocol.freeing import FreeReport, GpuHolders

if TYPE_CHECKING:
    from remote.gpus.freeing import Freeing


def gpu_operations(freeing: Callable[[], Freeing]) -> dict[str, Operation]:
    """The operations by their names.

    :param freeing: gives the engine, made at its first use.
    """

    def gpu_holders(args: Mapping[str, Any], key: Optional[str]) -> GpuHolders:
        return freeing().holders()

    def free_gpus(args: Mapping[str, Any], key: Optional[str]) -> FreeReport:
        from remote.gpus.freeing import Target

        wanted = args.get("targets")
        if not isinstance(wanted, (list, tuple)) or not wanted:
            raise RequestError(BAD_ARGUMENT, "targets is a list of processes with pid and start_ticks")
        targets = [arguments.record(Target, item) for item in wanted]
        return freeing().free(targets, arguments.texts(args, "force"), arguments.optional_text(args, "requested_by"))

    def free_report(args: Mapping[str, Any], key: Optional[str]) -> FreeReport:
        return freeing().report(arguments.text(args, "id"))

    return {"gpu_holders": gpu_holders, "free_gpus": free_gpus, "free_report": free_report}
