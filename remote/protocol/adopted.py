"""What runs on the host without having been started by us: vLLM servers and training runs (topic ``adopted``).

They are watched and left alone. The only thing that can be done to one is ``stop_adopted``, and that needs its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from remote.protocol.jobs import ProcessId
from remote.protocol.progress import Failure, Progress
from remote.protocol.serving import Serving
from remote.protocol.training import Training

ADOPTED = "adopted-"
"""How the id of an adopted process begins: no job's id does, since those begin with the name of a stage."""

KIND_SERVER = "server"  # a vLLM API server with its engines and workers
KIND_ENGINE = "engine"  # vLLM inside another program, without an API server
KIND_ORPHAN = "orphaned engine"  # engines or workers whose API server has died: they hold GPU memory for nobody
KIND_TRAINING = "training"
KIND_LOG = "log"  # a log that somebody asked to follow, and that has not yet shown what writes it


@dataclass(frozen=True)
class Adopted:
    """A process, or a log, that we did not start. What this user may not see of it is None.

    :param id: ``adopted-PID``, or ``adopted-log-HASH`` for a log without a process.
    :param name: what must be typed to stop it: the model's or the output folder's name.
    :param state: a state of ``remote.protocol.jobs``: ``running``, ``ready``, ``stopping``, ``gone``, ``done``.
    :param main: its main process, None for a log alone; ``processes`` are all of it that were found.
    :param own: this user may end it.
    :param command_line: with secrets replaced.
    :param started: wall seconds, from the process's start time.
    :param port: of its server on this host; None while it does not listen, or where that cannot be seen.
    :param model: the model that the command line names; ``output`` the folder a training run writes to.
    :param log: the file its output goes to; ``log_note`` says how that is known, or why there is none.
    :param healthy: ``/health`` answers 200; None where it cannot be asked. ``health_note`` is what was met instead.
    :param watched: somebody asked for it with ``adopt``.
    :param problem: what went wrong with ending it, or with reading its log; empty when nothing did.
    """

    id: str
    name: str
    kind: str
    state: str
    main: Optional[ProcessId] = None
    processes: tuple[ProcessId, ...] = ()
    user: Optional[str] = None
    own: bool = False
    command_line: Optional[str] = None
    cwd: Optional[str] = None
    started: Optional[float] = None
    seconds: Optional[float] = None
    port: Optional[int] = None
    model: Optional[str] = None
    output: Optional[str] = None
    tensor_parallel: Optional[int] = None
    log: Optional[str] = None
    log_note: str = ""
    healthy: Optional[bool] = None
    health_note: str = ""
    progress: Progress = Progress()
    serving: Optional[Serving] = None
    training: Optional[Training] = None
    failure: Optional[Failure] = None
    watched: bool = False
    note: str = ""
    problem: str = ""


@dataclass(frozen=True)
class AdoptedList:
    """Everything found, the newest first.

    :param unseen: processes of others whose command line is hidden.
    :param omitted: programs that are not watched or do not fit into a frame: those of others and old ones first.
    """

    records: tuple[Adopted, ...] = ()
    unseen: int = 0
    omitted: int = 0


def is_adopted(name: str) -> bool:
    """Whether an id names an adopted process and not a job."""
    return name.startswith(ADOPTED)
