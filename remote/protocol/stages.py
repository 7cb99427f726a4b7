"""The stage catalogue as the console gets it, with each stage's preflight verdict (operation ``stages``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

VERDICT_OK = "ok"
VERDICT_WARNING = "warning"
VERDICT_BLOCKED = "blocked"


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of a stage: its type is ``int``, ``float``, ``str``, ``bool`` or ``path``.

    :param choices: the only values, where there are not many.
    """

    name: str
    type: str
    help: str
    default: Any = None
    unit: str = ""
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One preflight check: ``rule`` is its stable name, ``reason`` what was found, ``remedy`` what to do."""

    rule: str
    verdict: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class StageInfo:
    """A stage, whether it can be launched now, and the exact command line that would run with the profile's values."""

    name: str
    kind: str
    summary: str
    verdict: str
    checks: tuple[Check, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    command_line: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class StageList:
    stages: tuple[StageInfo, ...] = ()


@dataclass(frozen=True)
class StageContext:
    """What the console's host profile says about the ML side of the host; None where the profile is silent.

    :param wall: the console's clock when it asked, seconds since the epoch.
    """

    verifier: Optional[str] = None
    python: Optional[str] = None
    tensor_parallel: Optional[int] = None
    wall: Optional[float] = None


@dataclass(frozen=True)
class LaunchRequest:
    """Arguments of the operation ``launch`` (and of ``plan``, which only answers what would run)."""

    stage: str
    parameters: dict[str, Any] = field(default_factory=dict)
    context: StageContext = StageContext()
    requested_by: str = ""
    force: tuple[str, ...] = ()
