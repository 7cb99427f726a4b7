"""The operations of a connected host, typed: what the screens and the command line both call."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from remote.protocol import frames
from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.artifacts import LEVEL_WHOLE, CheckpointList, Triage
from remote.protocol.codec import from_wire, to_wire
from remote.protocol.disk import DiskSnapshot
from remote.protocol.files import FileChunk, FileHash, FileList
from remote.protocol.frames import AgentHello, Event
from remote.protocol.freeing import FreeReport, GpuHolder, GpuHolders
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import Job, JobEvent, JobList, LogChunk
from remote.protocol.series import TrainingSeries
from remote.protocol.stages import LaunchRequest, StageContext, StageInfo, StageList
from remote.protocol.starts import EarlierStarts
from remote.protocol.trash import Journal, Pin, Plan, Receipt, TrashList
from remote.protocol.validation import DraftFix, DraftValidation

T = TypeVar("T")


class Session(Protocol):
    """A live conversation with an agent: what ``HostClient`` needs of the link."""

    @property
    def hello(self) -> AgentHello:
        """What the agent said about itself."""

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        """The answer to one operation.

        :raises RequestError: when the agent refuses.
        :raises LinkError: when the connection is lost before the answer.
        """

    def subscribe(self, topic: str, interval: float = 1.0, args: dict[str, Any] | None = None) -> AsyncIterator[Event]:
        """The events of a topic until the iterator is closed or the link ends (``LinkError``)."""


class HostClient:
    """Typed operations over a session. Every method raises ``RequestError`` and ``LinkError`` as ``Session`` does."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def hello(self) -> AgentHello:
        return self.session.hello

    async def gpus(self) -> GpuSnapshot:
        return await self._ask("gpus", GpuSnapshot)

    async def gpu_holders(self) -> GpuHolders:
        """Everything that holds GPU memory, with what protects it."""
        return await self._ask("gpu_holders", GpuHolders)

    async def free_gpus(self, holders: Sequence[GpuHolder], force: Sequence[str], requested_by: str) -> FreeReport:
        """Begins to end holders of GPU memory and answers at once; ``free_report`` says how far it is.

        :param force: names that lift a refusal: job ids and users.
        """
        targets = [
            {"pid": holder.pid, "start_ticks": holder.process.start_ticks if holder.process else 0}
            for holder in holders
        ]
        args = {"targets": targets, "force": list(force), "requested_by": requested_by}
        return await self._ask("free_gpus", FreeReport, args)

    async def free_report(self, report_id: str) -> FreeReport:
        return await self._ask("free_report", FreeReport, {"id": report_id})

    async def host(self) -> HostSample:
        return await self._ask("host", HostSample)

    async def disk(self) -> DiskSnapshot:
        """The disk usage after a finished pass."""
        return await self._ask("disk", DiskSnapshot)

    async def scan(self, cancel: bool = False) -> DiskSnapshot:
        """Begins a full pass over the workspace, or ends the one that runs, and answers with what is known now."""
        return await self._ask("scan", DiskSnapshot, {"cancel": cancel})

    async def jobs(self) -> JobList:
        return await self._ask("jobs", JobList)

    async def job(self, job_id: str) -> Job:
        """One job by its id, an unambiguous beginning of it, or its stage's name (the newest of that stage)."""
        return await self._ask("job", Job, {"job": job_id})

    async def series(self, job_id: str) -> TrainingSeries:
        """The course of the training run that a job, or an adopted process, writes."""
        return await self._ask("series", TrainingSeries, {"job": job_id})

    async def starts(self) -> EarlierStarts:
        """The earlier model loads of this workspace, the newest first."""
        return await self._ask("starts", EarlierStarts)

    async def stages(self, context: StageContext) -> StageList:
        return await self._ask("stages", StageList, {"context": to_wire(_timed(context))})

    async def plan(self, request: LaunchRequest) -> StageInfo:
        """What ``launch`` would run, with its preflight verdict; starts nothing."""
        return await self._ask("plan", StageInfo, to_wire(_timed_request(request)))

    async def launch(self, request: LaunchRequest, key: str | None = None) -> Job:
        """Starts a stage. The key makes it safe to send again after a lost answer: the same key is the same job."""
        return await self._ask("launch", Job, to_wire(_timed_request(request)), key or uuid.uuid4().hex)

    async def stop(self, job_id: str, requested_by: str = "", force: bool = False) -> Job:
        """Asks for a job's end and answers at once; ``force`` skips the grace period."""
        return await self._ask("stop", Job, {"job": job_id, "requested_by": requested_by, "force": force})

    async def read_log(
        self, job_id: str, offset: int | None = None, tail: int | None = None, since: str | None = None
    ) -> LogChunk:
        """A piece of a job's log from a byte offset, or its last ``tail`` lines.

        :param since: only what was written since then; the host's clock and time zone decide what it means.
        """
        args = {"job": job_id, "offset": offset, "tail": tail, "since": since}
        return await self._ask("read_log", LogChunk, args)

    async def adopted(self) -> AdoptedList:
        """What runs on the host without being a job of ours."""
        return await self._ask("adopted", AdoptedList)

    async def adopt(self, log: str | None = None, pid: int | None = None) -> Adopted:
        """Watches a log, or a process, that we did not start; the same call again gives its latest picture."""
        return await self._ask("adopt", Adopted, {"log": log, "pid": pid})

    async def stop_adopted(self, record: Adopted, name_typed: str, requested_by: str = "") -> Adopted:
        """Asks for the end of an adopted program and answers at once.

        :param name_typed: what a person typed; it must be the record's name.
        """
        main = record.main
        identity = {"pid": main.pid, "start_ticks": main.start_ticks} if main is not None else {}
        args = {**identity, "name_typed": name_typed, "requested_by": requested_by}
        return await self._ask("stop_adopted", Adopted, args)

    async def triage(self, directories: Sequence[str] = (), fresh: bool = False) -> Triage:
        """What is recognised on the disk, with a verdict for each.

        :param directories: only what lies in these.
        :param fresh: look again at everything, whatever is known from before.
        """
        args = {"fresh": fresh, **({"dirs": list(directories)} if directories else {})}
        return await self._ask("triage", Triage, args)

    async def checkpoints(self, directory: str) -> CheckpointList:
        """The checkpoints of a training run, the newest first."""
        return await self._ask("checkpoints", CheckpointList, {"dir": directory})

    async def plan_prune(self, paths: Sequence[str], level: str = LEVEL_WHOLE) -> Plan:
        """What deleting these paths would move into the trash; changes nothing.

        :param level: one of the ``LEVEL_`` words of ``remote.protocol.artifacts``.
        """
        return await self._ask("plan_prune", Plan, {"paths": list(paths), "level": level})

    async def plan_recommended(self, directory: str, level: str = LEVEL_WHOLE) -> Plan:
        """What the recommended policy would prune of a run: best, newest two and the last resumable stay."""
        return await self._ask("plan_prune", Plan, {"policy": "recommended", "dir": directory, "level": level})

    async def prune(self, plan: Plan, typed: str = "", requested_by: str = "", key: str | None = None) -> Receipt:
        """Moves into the trash what the plan says, item by item; the host refuses a plan that does not hold any more.

        :param typed: what a person typed, where ``plan.confirm`` asks for it.
        """
        args = {"plan": plan.id, "fingerprint": plan.fingerprint, "typed": typed, "requested_by": requested_by}
        return await self._ask("prune", Receipt, args, key or uuid.uuid4().hex)

    async def undo(self, receipt: str, requested_by: str = "") -> Receipt:
        """Puts back what a prune moved away; the receipt is named in full."""
        return await self._ask("undo", Receipt, {"receipt": receipt, "requested_by": requested_by}, uuid.uuid4().hex)

    async def purge(self, receipt: str, requested_by: str = "") -> TrashList:
        """Unlinks for good what a receipt has in the trash, and answers with what that freed."""
        return await self._ask("purge", TrashList, {"receipt": receipt, "requested_by": requested_by}, uuid.uuid4().hex)

    async def purge_expired(self, requested_by: str = "") -> TrashList:
        """Unlinks for good what has lain in the trash for longer than it is kept."""
        return await self._ask("purge", TrashList, {"expired": True, "requested_by": requested_by}, uuid.uuid4().hex)

    async def trash(self) -> TrashList:
        """The receipts whose items lie in the trash, the newest first."""
        return await self._ask("trash", TrashList)

    async def pin(self, path: str, pinned: bool = True, requested_by: str = "") -> Pin:
        """Protects a path from every prune, or ends that."""
        return await self._ask("pin", Pin, {"path": path, "pinned": pinned, "requested_by": requested_by})

    async def journal(self, limit: int) -> Journal:
        """The last ``limit`` entries of the host's journal, the newest first."""
        return await self._ask("journal", Journal, {"limit": limit})

    async def follow_log(
        self, job_id: str, tail: int | None = 200, since: str | None = None
    ) -> AsyncIterator[LogChunk]:
        """The last ``tail`` lines of a job's log, or those since a time, then what is appended, for ever."""
        args = {"job": job_id, "tail": tail, **({"since": since} if since else {})}
        async for event in self.session.subscribe(frames.TOPIC_LOG, 0.25, args):
            yield from_wire(LogChunk, event.data)

    async def events(self, job_id: str, after: int = 0) -> AsyncIterator[JobEvent]:
        """The events of a job with a ``seq`` above ``after``, from the first missed one, for ever."""
        async for event in self.session.subscribe(frames.TOPIC_EVENTS, 0.25, {"job": job_id, "after": after}):
            yield from_wire(JobEvent, event.data)

    async def list_files(self, path: str, after: str | None = None) -> FileList:
        """A page of the files at or below a path; ``after`` is the ``next`` of the page before."""
        return await self._ask("list_files", FileList, {"path": path, "after": after})

    async def read_file(self, path: str, offset: int, length: int) -> FileChunk:
        """At most ``CHUNK_BYTES`` of a file."""
        return await self._ask("read_file", FileChunk, {"path": path, "offset": offset, "length": length})

    async def hash_file(self, path: str, length: int) -> FileHash:
        """The hash of the first ``length`` bytes of a file, or of as many as the host could hash in a short time."""
        return await self._ask("hash_file", FileHash, {"path": path, "length": length})

    async def validate(self, path: str, verifier: str | None = None, layer_ids: str | None = None) -> DraftValidation:
        """What the rules say about the draft in a folder of the host.

        :param verifier: the folder of the verifier that it is to be served with.
        :param layer_ids: how its layer ids count, ``vllm`` or ``sglang``; None where nobody has said.
        """
        return await self._ask("validate", DraftValidation, _draft(path, verifier, layer_ids))

    async def fix_draft(
        self,
        path: str,
        target: str | None = None,
        verifier: str | None = None,
        layer_ids: str | None = None,
        requested_by: str = "",
    ) -> DraftFix:
        """Writes a corrected copy of a draft at ``target``, or beside it; the draft stays as it is."""
        args = {**_draft(path, verifier, layer_ids), "target": target, "requested_by": requested_by}
        return await self._ask("fix_draft", DraftFix, args)

    async def _ask(self, op: str, answer: type[T], args: dict[str, Any] | None = None, key: str | None = None) -> T:
        return from_wire(answer, await self.session.request(op, args, key))


def _timed(context: StageContext) -> StageContext:
    """With our clock, so that the host can say how far its own is off."""
    return replace(context, wall=time.time())


def _timed_request(request: LaunchRequest) -> LaunchRequest:
    return replace(request, context=_timed(request.context))


def _draft(path: str, verifier: str | None, layer_ids: str | None) -> dict[str, Any]:
    return {"dir": path, "verifier": verifier, "layer_ids": layer_ids}
