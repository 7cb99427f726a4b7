"""Launching and stopping jobs: job directories, and runners that live on without us."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Optional

import remote
from pipeline.plan import catalog
from remote import procfs
from remote.jobs import detaching, ownership, preflight, records
from remote.jobs.gathering import Gatherer, Readings
from remote.jobs.model_folder import ModelFolders
from remote.jobs.planning import Plan, plan
from remote.jobs.records import write_record
from remote.jobs.signals import send
from remote.jobs.store import JobStore
from remote.jobs.wakeup import KNOCK
from remote.policy import Policy
from remote.protocol import jobs
from remote.protocol.errors import BAD_ARGUMENT, CONFLICT, FAILED, REFUSED, RequestError
from remote.protocol.jobs import Job, JobExit, JobSpec, ProcessId, StopRequest
from remote.protocol.progress import Failure
from remote.protocol.stages import VERDICT_BLOCKED, Check, LaunchRequest, StageContext, StageInfo, StageList

CONFIRM_SECONDS = 2.0


class Launcher:
    """Starts and stops the jobs of a workspace.

    :param bundle_dir: the unpacked bundle that we run from; None in a checkout.
    :param readings: of GPUs and memory, for the checks; without it these are not known.
    """

    def __init__(
        self,
        store: JobStore,
        policy: Policy,
        bundle_dir: Optional[str],
        readings: Callable[[], Readings] = Readings,
    ) -> None:
        self._store = store
        self._policy = policy
        self._readings = readings
        self._folders = ModelFolders()
        self._bundle = detaching.Bundle.at(bundle_dir or str(Path(remote.__file__).parents[1]))

    def plan(self, request: LaunchRequest) -> StageInfo:
        """What a launch would run, with its checks. Needs neither inputs nor an ML environment; starts nothing.

        :raises RequestError: for an unknown stage or a wrong parameter.
        """
        return self._plan(request, self._gatherer(request.context)).info

    def stages(self, context: StageContext) -> StageList:
        """The catalogue, each stage with the profile's values and its checks."""
        gatherer = self._gatherer(context)
        return StageList(
            tuple(self._plan(LaunchRequest(stage.name, context=context), gatherer).info for stage in catalog.STAGES)
        )

    def launch(self, request: LaunchRequest, key: Optional[str] = None) -> Job:
        """Starts a job and returns it once its runner has reported.

        :param key: a request that comes again with the same key gets the same job.
        :raises RequestError: ``refused`` when a check stands in the way or the connection is read-only, ``failed`` when
            the job directory or the runner cannot be made, and as ``plan``.
        """
        self._policy.require_writable()
        try:
            self._checked(request)  # before anything is made on the disk
        except RequestError:
            known = self._launched(key)  # what stands in the way may be this key's own job
            if known is None:
                raise
            return known
        with _launch_lock(self._store.folder or ""):
            known = self._launched(key)
            if known is not None:
                return known
            directory = self._create(self._checked(request), request, key)
        self._start_runner(directory)
        return self._store.find(os.path.basename(directory))

    def stop(self, name: str, requested_by: str, force: bool) -> Job:
        """Asks for the end of a job and returns it as it is then: usually still stopping.

        :param force: no grace for the main process.
        :raises RequestError: ``not_found``; ``conflict`` when it has ended or runs elsewhere; ``refused`` on a
            read-only connection; ``failed`` when the wish cannot be written.
        """
        job = self._store.find(name)
        self._policy.require_writable()
        if job.state in jobs.ENDED_STATES:
            raise RequestError(CONFLICT, f"{job.id} has already ended: {job.state}")
        if job.state == jobs.ELSEWHERE:
            raise RequestError(CONFLICT, f"{job.id} runs on {job.host}", "connect to that host to stop it")
        stray = self._store.stray(job.id)
        if stray is not None:
            return self._stop_stray(job, stray, force)
        directory = self._store.directory(job.id)
        known = self._store.records(job.id)
        runner = known.runner or (known.started.runner if known.started else None)
        _check_own(job, directory, runner)
        try:
            write_record(
                os.path.join(directory, records.STOP), StopRequest(time.time(), requested_by, force), durable=True
            )
        except OSError as error:  # on a full disk a job can still be stopped, without saying by whom
            if runner is None or not send(runner, signal.SIGTERM):
                raise RequestError(FAILED, f"the stop of {job.id} cannot be recorded: {error.strerror}") from None
        if job.state == jobs.UNSUPERVISED:
            self._start_runner(directory)
        elif runner is not None:
            send(runner, KNOCK)
        return self._store.find(job.id)

    def _stop_stray(self, job: Job, runner: ProcessId, force: bool) -> Job:
        """Stops a job whose directory was removed: its runner takes SIGTERM for a request, but not for a forced one."""
        if force:
            pids = " ".join(map(str, job.pids))
            hint = f"stop it without --force; to end it at once, on the host: kill -9 {pids}"
            raise RequestError(CONFLICT, f"the folder of {job.id} was removed: its stop cannot be forced", hint)
        if not send(runner, signal.SIGTERM):
            raise RequestError(FAILED, f"the runner of {job.id}, process {runner.pid}, cannot be told to stop")
        return self._store.find(job.id)

    def _launched(self, key: Optional[str]) -> Optional[Job]:
        return self._store.with_key(key) if key else None

    def _gatherer(self, context: StageContext) -> Gatherer:
        living = tuple(job for job in self._store.list().jobs if job.state in jobs.LIVE_STATES)
        return Gatherer(self._policy, living, self._folders, self._readings(), context.wall)

    def _plan(self, request: LaunchRequest, gatherer: Gatherer) -> Plan:
        return plan(request, self._policy, gatherer, os.environ)

    def _checked(self, request: LaunchRequest) -> Plan:
        """The plan of a request, when no check stands in its way."""
        ready = self._plan(request, self._gatherer(request.context))
        unknown = sorted(set(request.force).difference(preflight.RULES))
        if unknown:
            raise RequestError(
                BAD_ARGUMENT, f"there is no check {unknown[0]!r}; there are: {', '.join(preflight.RULES)}"
            )
        stands = preflight.blocking(ready.checks, request.force)
        if stands:
            raise _refusal(ready.stage.name, stands)
        return ready

    def _create(self, ready: Plan, request: LaunchRequest, key: Optional[str]) -> str:
        """Makes the job directory; it appears with its spec in it or not at all."""
        folder = self._store.folder or ""
        created = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(created))
        job_id = f"{ready.stage.name}-{stamp}-{secrets.token_hex(2)}"
        final = os.path.join(folder, job_id)
        forced = {check.rule for check in ready.checks if check.verdict == VERDICT_BLOCKED}
        spec = JobSpec(
            id=job_id,
            stage=ready.stage.name,
            kind=ready.stage.kind,
            argv=ready.job_argv(os.path.join(final, records.SPEC)),
            cwd=self._policy.workspace or "/",
            parameters=ready.parameters,
            created=created,
            machine_id=procfs.machine_id(),
            host=socket.gethostname(),
            user=_user(),
            env=ready.job_env(self._bundle.library),
            health_url=ready.command.health_url,
            grace_seconds=ready.stage.grace_seconds,
            key=key,
            requested_by=request.requested_by,
            command_line=ready.command.line,
            watcher=ready.stage.watcher,
            simulated=ready.replay is not None,
            bundle_dir=self._bundle.directory,
            forced=tuple(sorted(forced)),
        )
        partial = os.path.join(folder, f".new-{job_id}")
        try:
            os.mkdir(partial, 0o755)  # whoever else may write into it could name the processes that a stop ends
            write_record(os.path.join(partial, records.SPEC), spec, durable=True)
            os.rename(partial, final)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise RequestError(FAILED, f"the job directory {final} cannot be made: {error.strerror}") from None
        return final

    def _start_runner(self, directory: str) -> None:
        """Starts a runner and waits until it has reported; one that fails at once is recorded and told.

        A runner that is merely slow is left to its work: the job then shows as starting.
        """
        problem = detaching.start_runner(self._bundle, directory, lambda: _reported(directory), CONFIRM_SECONDS)
        if not problem:
            return
        failure = Failure("runner_failed", f"The job runner could not be started: {problem}.")
        if not os.path.lexists(os.path.join(directory, records.STARTED)):
            with contextlib.suppress(OSError):
                record = JobExit(jobs.FAILED, time.time(), failure=failure)
                write_record(os.path.join(directory, records.EXIT), record, durable=True)
        raise RequestError(FAILED, failure.cause, f"see {os.path.join(directory, records.RUNNER_LOG)} on the host")


def _refusal(stage: str, stands: Sequence[Check]) -> RequestError:
    """One reason a line, and one remedy a line; of several, each remedy says which check it is for."""
    reasons = [f"{check.rule}: {check.reason}" for check in stands]
    remedies = []
    for check in stands:
        force = "" if check.rule in preflight.UNFORCEABLE else f"--force {check.rule}"
        ways = "; or ".join(filter(None, (check.remedy, force)))
        if ways:
            remedies.append(ways if len(stands) == 1 else f"{check.rule}: {ways}")
    begin = f"{stage} cannot be launched:"
    message = f"{begin} {reasons[0]}" if len(reasons) == 1 else "\n  ".join((begin, *reasons))
    return RequestError(REFUSED, message, "\n".join(remedies))


def _check_own(job: Job, directory: str, runner: Optional[ProcessId]) -> None:
    """Refuses a stop that the records of somebody else's job directory would lead to another process."""
    if runner is not None and procfs.alive(runner):
        if not ownership.is_runner_of(runner, directory):
            raise RequestError(REFUSED, f"the process {runner.pid} that the records of {job.id} name is not its runner")
    elif not ownership.is_ours(directory):
        raise RequestError(REFUSED, f"{job.id} was made by another user", "connect as that user to stop it")


@contextlib.contextmanager
def _launch_lock(folder: str) -> Iterator[None]:
    """Held while a job directory is made, so that one key makes one job, whoever asks, from wherever on this host."""
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(
            os.path.join(folder, ".launch.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
    except OSError as error:
        raise RequestError(FAILED, f"the job folder {folder} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _reported(directory: str) -> bool:
    """Whether the runner has started the stage, ended it, or taken over from a dead runner."""
    if os.path.lexists(os.path.join(directory, records.EXIT)):
        return True
    if not os.path.lexists(os.path.join(directory, records.STARTED)):
        return False
    try:
        runner = records.read_record(os.path.join(directory, records.LOCK), ProcessId)
    except records.RecordError:
        return False
    return runner is not None and procfs.alive(runner)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())
