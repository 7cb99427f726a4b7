"""What this agent can do: its operations and topics over the samplers, the disk monitor, the jobs and the launcher.

Each part is made at its first use, so that an agent that only lists jobs never opens NVML or walks a disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from remote import arguments, files
from remote.disk.operations import Operation, deletion_operations
from remote.disk.survey_operations import survey_operations, then_forget
from remote.drafts.operations import Drafts
from remote.gpus.operations import gpu_operations
from remote.jobs.past_operations import past_operations
from remote.policy import Policy
from remote.protocol.adopted import Adopted, AdoptedList, is_adopted
from remote.protocol.disk import DiskSnapshot
from remote.protocol.errors import BAD_ARGUMENT, FAILED, RequestError
from remote.protocol.files import FileChunk, FileHash, FileList
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import KIND_SERVICE, LIVE_STATES, Job, JobList, LogChunk, ProcessId
from remote.protocol.stages import LaunchRequest, StageContext, StageInfo, StageList
from remote.refreshed import Refreshed
from remote.telemetry.processes import label_jobs, name_of
from remote.telemetry.simulated import Server

if TYPE_CHECKING:
    from remote.adopt.adoption import Adoption
    from remote.disk.deletion import Deletion
    from remote.disk.survey import Survey
    from remote.disk.usage import UsageMonitor
    from remote.gpus.freeing import Freeing
    from remote.gpus.holding import Surroundings
    from remote.jobs.courses import Courses
    from remote.jobs.gathering import Readings
    from remote.jobs.launcher import Launcher
    from remote.jobs.store import JobStore
    from remote.telemetry.gpu import GpuSampler
    from remote.telemetry.host import HostSampler

LOG_CHUNK_BYTES = 32 * 1024
"""Of a log in one frame: a byte can become six in JSON, and the frame must stay below its limit."""

FIRST_PASS_SECONDS = 600.0
"""How long the operation ``disk`` waits for the first pass over the workspace."""

JOB_LIST_SECONDS = 0.5
"""A list of jobs younger than this is given again: the topics ``jobs`` and ``gpus`` both ask for it every second."""

FIRST_READING_SECONDS = 3.0
"""How long the GPUs may take to be read for the first time before they are shown as far as they are known."""

CPU_SECONDS = 0.25
"""The shortest time that a CPU load is measured over."""

LABEL_SECONDS = 0.5
"""How long the GPUs wait for the list of jobs that names their processes, before they show the last one."""

WITHOUT_ARGUMENTS = frozenset({"gpus", "host", "disk", "jobs", "adopted", "trash"})
"""Operations that read none; those that wait must not keep what a console sends with them."""

_PARTS = ("store", "launcher", "gpus", "host", "disk", "adoption", "deletion", "survey", "freeing", "courses")

T = TypeVar("T")


class Capabilities:
    """The operations over one workspace under one policy. All methods may block and be called from any thread.

    :param policy: what may be done, and the workspace; without one there are no jobs and no artifact directories.
    :param bundle_dir: the unpacked bundle that this agent runs from; None in a checkout.
    """

    def __init__(self, policy: Policy, bundle_dir: Optional[str] = None) -> None:
        self._policy = policy
        self._bundle_dir = bundle_dir
        self._parts: dict[str, Any] = {}
        self._files = files.Files(policy)
        self._making = {name: threading.Lock() for name in _PARTS}
        self._jobs = Refreshed(lambda: self.store().list(), JOB_LIST_SECONDS)
        self._host = Refreshed(lambda: self._host_sampler().sample(), CPU_SECONDS)
        self.operations: dict[str, Operation] = {
            "gpus": lambda args, key: self.gpus(),
            "host": lambda args, key: self.host_measured(),
            "disk": lambda args, key: self.disk_after_pass(),
            "scan": lambda args, key: self.scan(args.get("cancel") is True),
            "jobs": lambda args, key: self.jobs(),
            "job": lambda args, key: self.job(arguments.text(args, "job")),
            "stages": lambda args, key: self.stages(arguments.record(StageContext, args.get("context", {}))),
            "plan": lambda args, key: self.plan(arguments.record(LaunchRequest, args)),
            "launch": lambda args, key: self.launch(arguments.record(LaunchRequest, args), key),
            "stop": lambda args, key: self.stop(args),
            "read_log": lambda args, key: self.read_log(args),
            "adopted": lambda args, key: self.adopted(),
            "adopt": lambda args, key: self.adopt(args),
            "stop_adopted": lambda args, key: self.stop_adopted(args),
            "list_files": lambda args, key: self.list_files(args),
            "read_file": lambda args, key: self.read_file(args),
            "hash_file": lambda args, key: self.hash_file(args),
            **then_forget(deletion_operations(self.deletion), self.survey),
            **survey_operations(self.survey),
            **Drafts(policy, lambda: self.deletion().book).operations,
            **gpu_operations(self.freeing),
            **past_operations(policy.workspace, self.store, self._adoption, self._courses),
        }

    def gpus(self) -> GpuSnapshot:
        """The GPUs, all read once, with the jobs of ours that hold their memory named."""
        sampler = self._gpu_sampler()
        sampler.wait(FIRST_READING_SECONDS)
        snapshot = sampler.snapshot()
        if not any(gpu.processes for gpu in snapshot.gpus):
            return snapshot
        owners = {pid: job.id for job in self._live_jobs() for pid in job.pids}
        return label_jobs(snapshot, owners) if owners else snapshot

    def host(self) -> HostSample:
        """The latest reading; its CPU load is None at the very first, since it is a mean over time."""
        return self._host.get()

    def host_measured(self) -> HostSample:
        """A reading with the CPU load."""
        sample = self.host()
        if sample.cpu_percent is None:
            time.sleep(CPU_SECONDS)
            self._host.expire()
            sample = self.host()
        return sample

    def disk(self) -> DiskSnapshot:
        """The disk usage as far as it is known now."""
        return self._usage_monitor().snapshot()

    def disk_after_pass(self) -> DiskSnapshot:
        """The disk usage after a finished pass.

        :raises RequestError: when the first pass takes longer than ``FIRST_PASS_SECONDS``.
        """
        monitor = self._usage_monitor()
        if not monitor.wait(FIRST_PASS_SECONDS):
            seen = monitor.snapshot().files_seen
            raise RequestError(FAILED, f"the first pass over the workspace is not finished; {seen} files seen so far")
        return monitor.snapshot()

    def scan(self, cancel: bool) -> DiskSnapshot:
        """Begins a full pass over the workspace, or ends the one that runs; the topic ``disk`` shows how far it is."""
        monitor = self._usage_monitor()
        if cancel:
            monitor.cancel()
        else:
            monitor.rescan()
        return monitor.snapshot()

    def jobs(self) -> JobList:
        return self._jobs.get()

    def job(self, name: str) -> Job:
        return self.store().find(name)

    def stages(self, context: StageContext) -> StageList:
        return self._launcher().stages(context)

    def plan(self, request: LaunchRequest) -> StageInfo:
        return self._launcher().plan(request)

    def launch(self, request: LaunchRequest, key: Optional[str]) -> Job:
        job = self._launcher().launch(request, key)
        self._jobs.expire()
        return job

    def stop(self, args: Mapping[str, Any]) -> Job:
        requested_by = arguments.optional_text(args, "requested_by")
        job = self._launcher().stop(arguments.text(args, "job"), requested_by, args.get("force") is True)
        self._jobs.expire()
        return job

    def read_log(self, args: Mapping[str, Any]) -> LogChunk:
        """A piece of a job's or adopted log that fits a frame: from ``offset``, or the last ``tail`` lines.

        ``since`` leaves out what a job of ours wrote before that time.
        """
        name, offset, tail = (
            arguments.text(args, "job"),
            arguments.number(args, "offset"),
            arguments.number(args, "tail"),
        )
        if is_adopted(name):
            if args.get("since") is not None:
                raise RequestError(BAD_ARGUMENT, f"{name} has no time index; a job of ours has one")
            return self._adoption().read_log(name, offset, tail, LOG_CHUNK_BYTES)
        job = self.job(name)
        since = arguments.text(args, "since") if args.get("since") is not None else None
        return self.store().read_log(job.id, offset, tail, LOG_CHUNK_BYTES, since)

    def adopted(self) -> AdoptedList:
        """What runs on the host without being a job of ours."""
        return self._adoption().list()

    def adopt(self, args: Mapping[str, Any]) -> Adopted:
        """Watches the file ``log`` or the process ``pid``, or both as one."""
        log = arguments.text(args, "log") if args.get("log") is not None else None
        return self._adoption().adopt(log, arguments.number(args, "pid"))

    def stop_adopted(self, args: Mapping[str, Any]) -> Adopted:
        """Begins to end an adopted program whose name was typed; nothing else ever ends one."""
        pid, start_ticks = arguments.number(args, "pid"), arguments.number(args, "start_ticks")
        if pid is None or start_ticks is None:
            raise RequestError(BAD_ARGUMENT, "stop_adopted needs the pid and the start_ticks of the process")
        requested_by = args.get("requested_by")
        by = requested_by if isinstance(requested_by, str) else ""
        return self._adoption().stop(pid, start_ticks, arguments.text(args, "name_typed"), by)

    def list_files(self, args: Mapping[str, Any]) -> FileList:
        """A page of the files at or below ``path``, from behind ``after`` on."""
        path, _ = files.arguments(args)
        return self._files.list(path, arguments.text(args, "after") if args.get("after") is not None else None)

    def read_file(self, args: Mapping[str, Any]) -> FileChunk:
        """``length`` bytes of the file ``path`` from ``offset`` on."""
        path, (offset, length) = files.arguments(args, "offset", "length")
        return self._files.read(path, offset, length)

    def hash_file(self, args: Mapping[str, Any]) -> FileHash:
        """The hash of the first ``length`` bytes of the file ``path``, or of as many as could be hashed by now."""
        path, (length,) = files.arguments(args, "length")
        return self._files.hash(path, length)

    def store(self) -> JobStore:
        """The jobs of the workspace; without one there are none, and its list says why."""

        def make() -> JobStore:
            from remote.jobs.store import JobStore

            return JobStore(self._policy.workspace)

        return self._part("store", make)

    def survey(self) -> Survey:
        """What lies in the workspace and what may become of it."""

        def make() -> Survey:
            from remote.disk.survey import Survey

            return Survey(self._policy.workspace, lambda: self.deletion().pinned())

        return self._part("survey", make)

    def deletion(self) -> Deletion:
        """The engine that deletes in the workspace."""

        def make() -> Deletion:
            from remote.disk.deletion import Deletion

            survey = self.survey()
            return Deletion(self._policy, survey.verdicts, survey.checkpoints_now)

        return self._part("deletion", make)

    def freeing(self) -> Freeing:
        """What ends processes that hold GPU memory."""

        def make() -> Freeing:
            from remote.gpus.freeing import Freeing

            journal = self.deletion().book if self._policy.workspace else None
            launcher = self._launcher()
            return Freeing(
                self._policy, journal, self.gpus, self._around_gpus, lambda job, by: launcher.stop(job, by, False)
            )

        return self._part("freeing", make)

    def _courses(self) -> Courses:
        def make() -> Courses:
            from remote.jobs.courses import Courses

            return Courses(self._policy)

        return self._part("courses", make)

    def _around_gpus(self) -> Surroundings:
        from remote.gpus.holding import Surroundings
        from remote.gpus.looking import ancestors

        owners = {pid: job.id for job in self._live_jobs() for pid in job.pids}
        return Surroundings(owners, self.adopted().records, os.geteuid(), ancestors())

    def _launcher(self) -> Launcher:
        store = self.store()

        def make() -> Launcher:
            from remote.jobs.launcher import Launcher

            return Launcher(store, self._policy, self._bundle_dir, self._readings)

        return self._part("launcher", make)

    def _readings(self) -> Readings:
        """What preflight checks ask of the host; a GPU that does not answer delays them for a moment only."""
        from remote.jobs.gathering import Readings

        return Readings(self.gpus(), self.host())

    def _gpu_sampler(self) -> GpuSampler:
        def make() -> GpuSampler:
            from remote.telemetry.gpu import GpuSampler

            sampler = GpuSampler(servers=self._servers)
            sampler.start()
            return sampler

        return self._part("gpus", make)

    def _host_sampler(self) -> HostSampler:
        def make() -> HostSampler:
            from remote.telemetry.host import HostSampler

            return HostSampler(self._policy.workspace)

        return self._part("host", make)

    def _usage_monitor(self) -> UsageMonitor:
        def make() -> UsageMonitor:
            from remote.disk.usage import UsageMonitor

            monitor = UsageMonitor(self._policy.workspace)
            monitor.start()
            return monitor

        return self._part("disk", make)

    def _adoption(self) -> Adoption:
        def make() -> Adoption:
            from remote.adopt.adoption import Adoption

            return Adoption(self._policy, self._our_processes)

        return self._part("adoption", make)

    def _our_processes(self) -> set[ProcessId]:
        """The runners of our jobs and every process that they have recorded."""
        found: set[ProcessId] = set()
        for job in self._live_jobs():
            try:
                records = self.store().records(job.id)
            except RequestError:
                continue  # removed meanwhile
            if records.runner is not None:
                found.add(records.runner)
            if records.started is not None:
                found |= {records.started.runner, records.started.main}
            if records.state is not None:
                found.update(records.state.processes)
        return found

    def _live_jobs(self) -> list[Job]:
        """The live jobs as they were last known; does not wait for a workspace that hangs."""
        listed = self._jobs.latest(LABEL_SECONDS)
        return [job for job in (listed.jobs if listed else ()) if job.state in LIVE_STATES]

    def _servers(self) -> tuple[Server, ...]:
        services = [job for job in self._live_jobs() if job.kind == KIND_SERVICE and job.pids]
        return tuple(Server(job.pids[0], job.seconds or 0.0, name_of(job.pids[0])) for job in services)

    def _part(self, name: str, make: Callable[[], T]) -> T:
        with self._making[name]:
            if name not in self._parts:
                self._parts[name] = make()
            part: T = self._parts[name]
            return part
