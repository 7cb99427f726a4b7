"""The JSON documents of ``--json``: one stable shape a command, described in docs/json.md.

They are kept apart from the wire's records so that the wire can change without breaking a user's script. Sizes are
bytes, durations seconds, times wall seconds since the epoch; unknown is null.
"""

from __future__ import annotations

from typing import Any

from eagle_console.config import HostProfile
from remote.protocol.adopted import Adopted, is_adopted
from remote.protocol.codec import to_wire
from remote.protocol.disk import DiskSnapshot
from remote.protocol.frames import AgentHello
from remote.protocol.gpu import Gpu, GpuSnapshot
from remote.protocol.host import Filesystem, HostSample
from remote.protocol.jobs import Job
from remote.protocol.progress import Failure, Progress
from remote.protocol.stages import Check, StageInfo
from remote.watch.explain import Explanation

Document = dict[str, Any]

LOAD_STAGE = "serve"


def failure(value: Failure | None) -> Document | None:
    """The ``error`` of a failed start or job."""
    if value is None:
        return None
    return {"class": value.klass, "cause": value.cause, "remedy": value.remedy, "line": value.line}


def error(klass: str, cause: str, remedy: str = "") -> Document:
    """What a command that could not do its work prints."""
    return {"error": {"class": klass, "cause": cause, "remedy": remedy, "line": ""}}


def gpus(snapshot: GpuSnapshot) -> Document:
    return {
        "driver": snapshot.driver,
        "message": snapshot.message,
        "driver_version": snapshot.driver_version,
        "cuda_version": snapshot.cuda_version,
        "simulated": snapshot.simulated,
        "gpus": [_gpu(gpu) for gpu in snapshot.gpus],
    }


def host(sample: HostSample) -> Document:
    return {
        "cpus": sample.cpus,
        "cpu_percent": sample.cpu_percent,
        "memory_total": sample.memory_total,
        "memory_available": sample.memory_available,
        "load": list(sample.load) if sample.load else None,
        "uptime": sample.uptime,
        "shm": _filesystem(sample.shm),
        "workspace": _filesystem(sample.workspace),
    }


def disk(snapshot: DiskSnapshot) -> Document:
    return {
        "workspace": snapshot.workspace,
        "problem": snapshot.problem,
        "scanned": snapshot.scanned,
        "filesystem": _filesystem(snapshot.filesystem),
        "allocated": sum(entry.allocated for entry in snapshot.entries),
        "growth": snapshot.growth,
        "full_in": snapshot.full_in,
        "directories": [to_wire(entry) for entry in snapshot.entries],
        "own": [to_wire(entry) for entry in snapshot.own],
    }


def progress(value: Progress) -> Document:
    return {
        "phase": value.phase,
        "done": value.done,
        "total": value.total,
        "unit": value.unit,
        "percent": value.percent,
        "rate": value.rate,
        "read_rate": value.read_rate,
        "ready": value.ready,
        "detail": value.detail,
        "figures": value.figures or {},
        "eta": None if value.eta is None else to_wire(value.eta),
        "bottleneck": value.bottleneck,
        "ranks": [to_wire(rank) for rank in value.ranks],
        "phases": [
            {
                "name": phase.name,
                "start": phase.start,
                "end": phase.end,
                "seconds": None if phase.end is None else phase.end - phase.start,
                "detail": phase.detail,
            }
            for phase in value.phases
        ],
    }


def explanation(value: Explanation) -> Document:
    """A vLLM log, explained offline."""
    return {
        "state": value.state,
        "version": value.version,
        "model": value.model,
        **progress(value.progress),
        "seconds": value.seconds,
        "total_seconds": value.total_seconds,
        "error": failure(value.error),
        "note": value.note,
    }


def job(value: Job) -> Document:
    return {
        "id": value.id,
        "stage": value.stage,
        "kind": value.kind,
        "state": value.state,
        "note": value.note,
        "host": value.host,
        "created": value.created,
        "started": value.started,
        "ended": value.ended,
        "seconds": value.seconds,
        "exit_code": value.code,
        "signal": value.signal,
        "pids": list(value.pids),
        "parameters": value.parameters,
        "command_line": value.command_line,
        "health_url": value.health_url,
        "log": value.log,
        "progress": progress(value.progress),
        "error": failure(value.failure),
        "simulated": value.simulated,
        "evidence": [to_wire(item) for item in value.evidence],
    }


def load(value: Job | None) -> Document | None:
    """The model load to look at: that of a job, or of an adopted server in a job's shape; null where there was none."""
    if value is None:
        return None
    counted = progress(value.progress)
    return {
        "job": value.id,
        "adopted": is_adopted(value.id),
        "state": value.state,
        "seconds": value.seconds,
        "error": failure(value.failure),
        "simulated": value.simulated,
        **counted,
    }


def adopted(value: Adopted) -> Document:
    """A program that runs without being a job of ours."""
    return {
        "id": value.id,
        "name": value.name,
        "kind": value.kind,
        "state": value.state,
        "adopted": True,
        "user": value.user,
        "own": value.own,
        "pid": value.main.pid if value.main is not None else None,
        "start_ticks": value.main.start_ticks if value.main is not None else None,
        "pids": [process.pid for process in value.processes],
        "command_line": value.command_line,
        "cwd": value.cwd,
        "started": value.started,
        "seconds": value.seconds,
        "model": value.model,
        "output": value.output,
        "tensor_parallel": value.tensor_parallel,
        "port": value.port,
        "healthy": value.healthy,
        "health_note": value.health_note,
        "log": value.log,
        "log_note": value.log_note,
        "note": value.note,
        "problem": value.problem,
        "progress": progress(value.progress),
        "serving": None if value.serving is None else to_wire(value.serving),
        "training": None if value.training is None else to_wire(value.training),
        "error": failure(value.failure),
    }


def training(value: Adopted | None) -> Document | None:
    """The training run to look at; null where none is known or its log says nothing yet."""
    if value is None or value.training is None:
        return None
    return {
        "job": value.id,
        "adopted": True,
        "state": value.state,
        "seconds": value.seconds,
        "error": failure(value.failure),
        **to_wire(value.training),
    }


def check(value: Check) -> Document:
    return {"rule": value.rule, "verdict": value.verdict, "reason": value.reason, "remedy": value.remedy}


def stage(value: StageInfo) -> Document:
    return {
        "name": value.name,
        "kind": value.kind,
        "summary": value.summary,
        "verdict": value.verdict,
        "checks": [check(item) for item in value.checks],
        "parameters": [to_wire(parameter) for parameter in value.parameters],
        "command_line": value.command_line,
        "simulated": value.simulated,
    }


def agent(hello: AgentHello) -> Document:
    return {
        "host": hello.host,
        "user": hello.user,
        "machine_id": hello.machine_id,
        "boot_id": hello.boot_id,
        "python": hello.python,
        "bundle": hello.agent,
        "psutil": hello.psutil,
        "readonly": hello.readonly,
        "readonly_reason": hello.readonly_reason,
        "workspace": hello.workspace,
        "roots": list(hello.roots),
        "wall": hello.wall,
    }


def profile(value: HostProfile) -> Document:
    return {
        "name": value.name,
        "address": value.address,
        "workspace": value.workspace,
        "verifier": value.verifier,
        "python": value.python,
        "tensor_parallel": value.tensor_parallel,
        "engine": value.engine,
        "readonly": value.readonly,
        "transport": value.transport,
        "prune": value.prune,
    }


def _gpu(gpu: Gpu) -> Document:
    fields: Document = to_wire(gpu)
    del fields["mono"]
    return fields


def _filesystem(value: Filesystem | None) -> Document | None:
    return None if value is None else to_wire(value)
