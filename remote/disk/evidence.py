"""What triage decides from: everything that was read from the disk, the kernel and the records, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from remote.disk.artifacts import Found
from remote.disk.references import Reference
from remote.disk.runs import Run
from remote.disk.uses import Use
from remote.protocol.artifacts import Checkpoint, Size

GRACE_SECONDS = 120.0
"""What changed this recently may still be being written."""


@dataclass(frozen=True)
class Rebuild:
    """What it costs to make a thing again: minutes, and how that is known."""

    minutes: float
    basis: str


@dataclass(frozen=True)
class Thing:
    """One recognised thing with what is known about it.

    :param real: its path with symbolic links resolved, as references name it.
    :param modified, oldest: newest and oldest modification time in it, wall seconds.
    :param owner: the user that it belongs to, where that is not the agent's user; None otherwise.
    :param verifier: the verifier that a run was trained for, as its files name it.
    :param prompts: digests of its prompts, of a data set that has them; empty where they were not read.
    """

    found: Found
    real: str
    size: Size
    modified: Optional[float] = None
    oldest: Optional[float] = None
    owner: Optional[str] = None
    verifier: str = ""
    prompts: frozenset[bytes] = frozenset()
    rebuild: Optional[Rebuild] = None
    use: Optional[Use] = None

    @property
    def path(self) -> str:
        return self.found.path

    @property
    def kind(self) -> str:
        return self.found.kind

    @property
    def run(self) -> Optional[Run]:
        """The run that it is, or that it is a checkpoint of."""
        return self.found.run

    @property
    def checkpoint(self) -> Optional[Checkpoint]:
        return self.found.checkpoint


@dataclass(frozen=True)
class Snapshot:
    """A workspace at one moment. The same snapshot always gives the same verdicts.

    :param now: wall seconds of the reading.
    :param pins: who pinned a path, by its resolved path.
    :param mounts: the mount points of this host.
    """

    workspace: str
    now: float
    things: tuple[Thing, ...] = ()
    references: tuple[Reference, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    mounts: frozenset[str] = frozenset()
