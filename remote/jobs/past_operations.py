"""The operations that look back: ``series``, the course of a training run, and ``starts``, earlier loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from remote import arguments
from remote.disk.operations import Operation
from remote.protocol.adopted import is_adopted
from remote.protocol.series import TrainingSeries
from remote.protocol.starts import EarlierStart, EarlierStarts
from remote.watch.history import SPANS, PastStart

if TYPE_CHECKING:
    from remote.adopt.adoption import Adoption
    from remote.jobs.courses import Courses
    from remote.jobs.store import JobStore

MAX_STARTS = 32


def past_operations(
    workspace: Optional[str],
    store: Callable[[], JobStore],
    adoption: Callable[[], Adoption],
    courses: Callable[[], Courses],
) -> dict[str, Operation]:
    """The operations by their names. The parts are made at their first use."""

    def series(args: Mapping[str, Any], key: Optional[str]) -> TrainingSeries:
        name = arguments.text(args, "job")
        if is_adopted(name):
            return courses().of_adopted(adoption().find(name).snapshot())
        return courses().of_job(store().find(name))

    def starts(args: Mapping[str, Any], key: Optional[str]) -> EarlierStarts:
        if workspace is None:
            return EarlierStarts()
        from remote.jobs.starts import StartsFile

        newest_first = reversed(StartsFile(workspace).read()[-MAX_STARTS:])
        return EarlierStarts(tuple(_told(start) for start in newest_first))

    return {"series": series, "starts": starts}


def _told(start: PastStart) -> EarlierStart:
    key = start.key
    spans = {name: start.seconds[name] for name in SPANS if name in start.seconds}
    return EarlierStart(
        key.model, key.draft, key.filesystem, key.tensor_parallel, key.version, key.cache, spans,
        start.size, start.warm, start.wall or None,
    )  # fmt: skip
