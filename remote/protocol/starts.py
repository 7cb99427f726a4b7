"""Earlier starts of servers on this host, for people to compare a load with (operation ``starts``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class EarlierStart:
    """A start that became ready. An empty text, 0 or None is not known.

    :param model: path of the model; ``draft`` of the draft model.
    :param filesystem: where the weights lie: mount point and type.
    :param cache: ``warm`` or ``cold``: whether compiled code of an earlier start was there.
    :param spans: seconds of each part of the start by its name, in their order; a part that it did not have is missing.
    :param size: bytes of the checkpoint. :param warm: its weights came from the page cache.
    :param wall: when it was ready, seconds since the epoch.
    """

    model: str = ""
    draft: str = ""
    filesystem: str = ""
    tensor_parallel: int = 0
    version: str = ""
    cache: str = ""
    spans: dict[str, float] = field(default_factory=dict)
    size: Optional[float] = None
    warm: Optional[bool] = None
    wall: Optional[float] = None

    @property
    def seconds(self) -> float:
        """The whole start."""
        return sum(self.spans.values())


@dataclass(frozen=True)
class EarlierStarts:
    """The newest first."""

    starts: tuple[EarlierStart, ...] = ()
